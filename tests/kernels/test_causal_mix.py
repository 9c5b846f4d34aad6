"""The forms of the mixing product agree with the formula, forward and backward."""

import shutil
from unittest import mock

import numpy as np
import pytest
import torch

from mixit_titan.kernels.causal_mix import causal_mix, mixing_state
from mixit_titan.kernels.documents import document_table
from mixit_titan.kernels.mixing import MatrixSpec, mixing_matrix
from mixit_titan.kernels.stored import stored_rows
from mixit_titan.kernels.triangle import compiled_mix

FORMS = ["stored", "sharded", "generated"]
CPU = torch.device("cpu")


def matrix_spec(
    length: int = 200, *, causal: bool = True, recipe: str = "paper", identity: bool = True
) -> MatrixSpec:
    """`signs` is the official recipe with another noise."""
    return MatrixSpec(
        seed=(3 << 32) + 1,
        length=length,
        std_low=0.1,
        std_high=0.1 if recipe == "paper" else 0.3,
        identity=identity,
        sink_head=recipe != "paper",
        causal=causal,
        noise="sign" if recipe == "signs" else "gaussian",
    )


def values(batch: int, length: int, dtype: torch.dtype, heads: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(length)
    v = torch.randn(batch, length, heads, 5, generator=generator, dtype=torch.float64)
    return v.to(dtype).requires_grad_()


def state(form: str, spec: MatrixSpec, dtype: torch.dtype = torch.float32) -> dict:
    return mixing_state(form, spec, 2, range(3), dtype=dtype, device=CPU)


def by_loops(spec: MatrixSpec, v: torch.Tensor, positions: np.ndarray) -> np.ndarray:
    """The sums, row by row in NumPy and float64, with A as drawn."""
    a = mixing_matrix(spec, 2, range(3)).double().numpy()
    v = v.detach().double().numpy()
    out = np.zeros_like(v)
    for b, row in enumerate(positions):
        first = np.arange(len(row)) - row
        for i in range(len(row)):
            same = first == first[i]
            out[b, i] = np.einsum("nj,jnh->nh", a[:, row[i], row[same]], v[b, same])
    return out


def relative(ours: torch.Tensor, expected: torch.Tensor | np.ndarray) -> float:
    expected = torch.as_tensor(expected)
    return float((ours.detach().double() - expected).abs().max() / expected.abs().max())


TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("recipe", ["paper", "official", "signs"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_forms_agree_with_the_sums(
    form: str, causal: bool, recipe: str, dtype: torch.dtype
) -> None:
    spec = matrix_spec(130, causal=causal, recipe=recipe)
    for batch, length in ((1, 1), (2, 2), (3, 64), (1, 65), (2, 130)):
        v = values(batch, length, dtype)
        positions = np.tile(np.arange(length), (batch, 1))
        out = causal_mix(v, form, spec, state(form, spec, dtype))
        assert relative(out, by_loops(spec, v, positions)) < TOLERANCE[dtype]


@pytest.mark.parametrize(
    ("form", "compiled"), [("stored", True), ("stored", False), ("sharded", False)]
)
def test_both_products_at_any_length_width_and_layout(
    form: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns and rows that do not fill the tiles of a product, and v and its gradient as views."""
    if compiled and shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    in_c = mock.Mock(wraps=compiled_mix()) if compiled else None
    monkeypatch.setattr("mixit_titan.kernels.stored.compiled_mix", lambda: in_c)
    spec = matrix_spec(1100)
    kept, a = state(form, spec), mixing_matrix(spec, 2, range(3)).double().numpy()
    generator = torch.Generator().manual_seed(0)
    for batch, length, width in ((2, 1100, 16), (1, 530, 33), (7, 95, 1), (3, 97, 24)):
        v = torch.randn(batch, length, 4, width + 3, generator=generator)[:, :, 1:, 2:-1]
        grad = torch.randn(batch, length, width, 3, generator=generator).transpose(2, 3)
        out = causal_mix(v.requires_grad_(), form, spec, kept)
        corner = a[:, :length, :length]
        expected = np.einsum("nij,bjnh->binh", corner, v.detach().double().numpy(), optimize=True)
        assert relative(out, expected) < 1e-5
        (ours,) = torch.autograd.grad(out, v, grad)
        expected = np.einsum("nij,binh->bjnh", corner, grad.double().numpy(), optimize=True)
        assert relative(ours, expected) < 1e-5
    if compiled:
        assert in_c.call_count == 2 * 4  # forward and backward of each


def test_a_matrix_of_fewer_bits_than_v() -> None:
    """In bfloat16 it is kept without its identity."""
    spec, v = matrix_spec(130), values(2, 130, torch.float32)
    out = causal_mix(v, "stored", spec, state("stored", spec, torch.bfloat16))
    assert relative(out, by_loops(spec, v, np.tile(np.arange(130), (2, 1)))) < 2e-2


@pytest.mark.parametrize("form", ["reference", *FORMS])
def test_more_positions_or_heads_than_there_are_is_an_error(form: str) -> None:
    spec = matrix_spec(20)
    with pytest.raises(ValueError, match="v has 21 positions, and the matrices 20"):
        causal_mix(values(1, 21, torch.float32), form, spec, state(form, spec))
    with pytest.raises(ValueError, match="v has 4 heads, and the matrices 3"):
        causal_mix(values(1, 20, torch.float32, heads=4), form, spec, state(form, spec))


ROWS = ((70, 1, 59), (130,), (5, 125))
PACKED = torch.tensor([[i for length in row for i in range(length)] for row in ROWS])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("form", ["reference", *FORMS])
def test_documents_are_mixed_apart(form: str, causal: bool) -> None:
    spec = matrix_spec(130, causal=causal, recipe="official")
    v = values(3, 130, torch.float32)
    out = causal_mix(v, form, spec, state(form, spec), document_table(PACKED))
    assert relative(out, by_loops(spec, v, PACKED.numpy())) < 1e-5


@pytest.mark.parametrize("form", ["reference", *FORMS])
def test_documents_of_every_length_in_batches_of_any_size(form: str) -> None:
    """From one token to the complete row, and rows of padding at the end; widths that fill no
    tile. Forward and backward."""
    spec = matrix_spec(140, recipe="official")
    kept, a = state(form, spec), mixing_matrix(spec, 2, range(3)).double()
    lengths = [(n, 40 - n) if n < 40 else (40,) for n in range(1, 41)]
    generator = torch.Generator().manual_seed(0)
    for rows, width in (
        ([(1,)], 1),
        ([(140,), (1,) * 140], 3),
        (lengths + [(1,) * 40] * 24, 17),  # 64 rows
    ):
        v, grad = torch.randn(2, len(rows), sum(rows[0]), 3, width, generator=generator)
        positions = torch.tensor([[i for n in row for i in range(n)] for row in rows])
        out = causal_mix(v.requires_grad_(), form, spec, kept, document_table(positions))
        (back,) = torch.autograd.grad(out, v, grad)
        for b, row in enumerate(rows):
            for end, n in zip(np.cumsum(row), row, strict=True):
                at = (b, slice(end - n, end))
                corner = a[:, :n, :n]
                there = torch.einsum("nij,jnh->inh", corner, v[at].double())
                again = torch.einsum("nij,inh->jnh", corner, grad[at].double())
                assert (out[at] - there).abs().max() < 1e-5 and (
                    back[at] - again
                ).abs().max() < 1e-5


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", ["reference", *FORMS])
def test_gradients_are_those_of_the_sums(form: str, packed: bool) -> None:
    positions = torch.tensor([[0, 1, 2, 0, 1], [0, 0, 1, 2, 3]])
    documents = document_table(positions) if packed else None
    for causal, identity in ((True, True), (False, True), (True, False)):
        spec = matrix_spec(7, causal=causal, identity=identity, recipe="official")
        kept = state(form, spec, torch.float64)
        v = values(2, 5, torch.float64)

        def mix(v: torch.Tensor, spec: MatrixSpec = spec, kept: dict = kept) -> torch.Tensor:
            return causal_mix(v, form, spec, kept, documents)

        torch.autograd.gradcheck(mix, v, fast_mode=True)
        torch.autograd.gradgradcheck(mix, v, fast_mode=True)


@pytest.mark.parametrize("form", FORMS)
def test_backward_is_the_transposed_product(form: str) -> None:
    """A length of several strips, the last one incomplete."""
    spec = matrix_spec(200, recipe="official")
    v = values(2, 170, torch.float32)
    grad = values(2, 170, torch.float32).detach().flip(1)
    (ours,) = torch.autograd.grad(causal_mix(v, form, spec, state(form, spec)), v, grad)
    a = mixing_matrix(spec, 2, range(3)).double()[:, :170, :170]
    expected = torch.einsum("nij,binh->bjnh", a, grad.double())
    assert relative(ours, expected) < 1e-5


@pytest.mark.parametrize("form", FORMS)
def test_the_product_passes_the_checks_of_torch_library(form: str) -> None:
    spec = matrix_spec(9)
    kept = state(form, spec)
    if form == "generated":
        op = torch.ops.mixit_titan.generated_mix.default
        rest = (kept["key"], kept["means"], kept["stds"], None, True, True, False, True, False)
    else:
        op = torch.ops.mixit_titan.stored_mix.default
        rest = (kept["matrix"], None, True, form == "stored", False, False)
    v = values(2, 9, torch.float32)
    if form != "generated":  # its gradient is a Function around it
        v = v.detach()
    outcomes = torch.library.opcheck(op, (v, *rest))
    assert len(outcomes) > 1 and set(outcomes.values()) == {"SUCCESS"}


@pytest.mark.parametrize("length", [1, 128, 130, 300])
def test_a_packed_matrix_has_the_tiles_of_the_triangle(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU: what is padded is 0, and any rows can be read from it."""
    monkeypatch.setattr("mixit_titan.kernels.stored.by_triton", lambda _: True)
    spec = matrix_spec(length, recipe="official")
    packed = state("stored", spec)["matrix"]
    blocks = -(-length // 128)
    a = np.zeros((3, blocks * 128, blocks * 128))
    a[:, :length, :length] = mixing_matrix(spec, 2, range(3)).numpy()
    places = [(p, q) for p in range(blocks) for q in range(p + 1)]
    assert packed.shape == (3, len(places), 128, 128)
    for tile, (p, q) in enumerate(places):
        expected = a[:, 128 * p : 128 * (p + 1), 128 * q : 128 * (q + 1)]
        assert np.abs(packed[:, tile].numpy() - expected).max() < 1e-6
    monkeypatch.undo()
    for kept in (packed, state("stored", spec)["matrix"]):
        for first, last in ((0, length), (length - 1, length), (length // 2, length)):
            rows = stored_rows(kept, first, last).numpy()
            assert np.abs(rows - a[:, first:last, :last]).max() < 1e-6


def test_rows_of_a_noncausal_matrix_sum_to_one_over_the_whole_row() -> None:
    a = mixing_matrix(matrix_spec(90, causal=False), 0, range(2))
    assert (a.sum(-1) - 1).abs().max() < 1e-5
    assert (a[:, 0, 50:] != 0).all()


@pytest.mark.parametrize("form", FORMS)
def test_the_product_compiles_as_one_graph(form: str) -> None:
    """The table of documents with it: nothing in it depends on the positions' values."""
    spec = matrix_spec(130, recipe="official")
    kept = state(form, spec)

    def mix(v: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return causal_mix(v, form, spec, kept, document_table(positions))

    v = values(3, 130, torch.float32)
    compiled = torch.compile(mix, fullgraph=True, backend="aot_eager")
    for positions in (PACKED, PACKED.flip(0)):
        torch.testing.assert_close(compiled(v, positions), mix(v, positions))
