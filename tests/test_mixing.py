"""The random mixing alone: the formula, and what a user's model does with its modules."""

import copy
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch._dynamo.testing
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from mixit_titan.errors import ConfigError
from mixit_titan.mixing import RandomMixing, document_table
from mixit_titan.model.recipes import Recipe
from tests.forkserver import Forkserver
from tests.model.numpy_philox import mixing_noise, mixing_signs

HEADS, WIDTH, LENGTH, SEED, LAYER = 3, 8, 70, 5, 2
FORMS = ["stored", "generated"]
CAST = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float64: 1e-6}


def mixing(**changes: object) -> RandomMixing:
    settings = {"seed": SEED, "layer": LAYER} | changes
    return RandomMixing(HEADS, WIDTH, LENGTH, **{"layer": 0} | settings)


def values(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(2, LENGTH, HEADS, WIDTH, generator=generator)
    return v.to(dtype).requires_grad_()


def matrices(causal: bool = True, signs: bool = False) -> np.ndarray:
    """The paper's formula: I + W - mean(W) with std 1/sqrt(n m)."""
    found = []
    for head in range(HEADS):
        noise = (mixing_signs if signs else mixing_noise)(SEED, LAYER, head, LENGTH)
        seen = np.tri(LENGTH) if causal else np.ones((LENGTH, LENGTH))
        mean = (noise * seen).sum(1, keepdims=True) / seen.sum(1, keepdims=True)
        found.append(np.eye(LENGTH) + (noise - mean) * seen / np.sqrt(HEADS * WIDTH * LENGTH))
    return np.stack(found)


def error(ours: torch.Tensor, v: torch.Tensor, causal: bool = True, signs: bool = False) -> float:
    a, v = matrices(causal, signs), v.detach().double().numpy()
    expected = np.einsum("nij,bjnh->binh", a[:, : v.shape[1], : v.shape[1]], v)
    return float(np.abs(ours.detach().double().numpy() - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("noise", ["gaussian", "sign"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("storage", FORMS)
def test_it_is_the_formula(storage: str, causal: bool, noise: str) -> None:
    v = values()
    out = mixing(storage=storage, causal=causal, noise=noise)(v)
    assert error(out, v, causal, noise == "sign") < 1e-5


@pytest.mark.parametrize("storage", FORMS)
def test_documents_are_mixed_as_they_would_be_alone(storage: str) -> None:
    rows = ((40, 29, 1), (LENGTH,))
    positions = torch.tensor([[i for size in sizes for i in range(size)] for sizes in rows])
    v = values()
    out = mixing(storage=storage)(v, documents=document_table(positions))
    for row, sizes in enumerate(rows):
        for end, size in zip(np.cumsum(sizes), sizes, strict=True):
            place = (slice(row, row + 1), slice(end - size, end))
            assert error(out[place], v[place]) < 1e-5


def test_knobs_are_those_of_a_recipe() -> None:
    v = values()
    named, made = mixing(recipe="official"), mixing(recipe=Recipe(std="heads", sink_head=True))
    assert torch.equal(named(v), made(v))
    sink = named(v)[:, 1:, 0] - (v[:, 1:, 0] + v[:, :1, 0]) / 2  # half itself, half position 0
    assert sink.abs().max() < 1e-6


def test_importing_it_imports_no_torchtitan() -> None:
    code = "import sys, mixit_titan.mixing as m; print({'torch', 'torchtitan'} & {*sys.modules})"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert said.stdout == "{'torch'}\n"


@pytest.mark.parametrize("dtype", CAST, ids=str)
@pytest.mark.parametrize("storage", FORMS)
def test_a_cast_module_keeps_its_matrix(storage: str, dtype: torch.dtype) -> None:
    """Also the noise beside the identity, which bfloat16 cannot hold in one number."""
    block = nn.Sequential(mixing(storage=storage)).to(dtype)
    v = values(dtype)
    out = block(v)
    assert out.dtype == dtype and error(out, v) < CAST[dtype]
    apart = (out - v).detach().double().numpy()
    noise = np.einsum("nij,bjnh->binh", matrices() - np.eye(LENGTH), v.detach().double().numpy())
    if dtype != torch.bfloat16:
        assert np.abs(apart - noise).max() < 1e-4 * np.abs(noise).max()
    if storage == "stored":
        kept = block[0].matrix[:, 5, 5].double().numpy() + (dtype == torch.bfloat16)
        assert np.abs(kept - matrices()[:, 5, 5]).max() < 1e-4


@pytest.mark.parametrize("storage", FORMS)
def test_what_was_made_on_meta_is_drawn_where_it_is_put(storage: str) -> None:
    with torch.device("meta"):
        block = nn.Sequential(nn.Linear(4, 4), mixing(storage=storage))
    assert all(buffer.is_meta for buffer in block.buffers())
    v = values()
    for _ in range(2):  # and emptied once more, on the same device
        block.to_empty(device="cpu")
        assert error(block[1](v), v) < 1e-5


@pytest.mark.parametrize("storage", FORMS)
def test_autocast(storage: str) -> None:
    linear, mix, v = nn.Linear(WIDTH, WIDTH, bias=False), mixing(storage=storage), values()
    nn.init.eye_(linear.weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inner = linear(v)
        out = mix(inner)
    assert inner.dtype == out.dtype == torch.bfloat16
    assert error(out, v) < 2e-2
    if storage == "stored":  # computed in float32, where the diagonal keeps its noise
        exact = torch.einsum("nij,bjnh->binh", torch.tensor(matrices()), inner.double())
        torch.testing.assert_close(out.double(), exact, rtol=2**-8, atol=1e-6)
    out.backward(torch.ones_like(out))
    expected = matrices().sum(1)  # of each column
    ours = v.grad.double().numpy() - expected.T[:, :, None]
    assert v.grad.dtype == torch.float32 and np.abs(ours).max() < 2e-2 * np.abs(expected).max()


@pytest.mark.parametrize("storage", FORMS)
def test_compiled_as_one_graph_for_all_layers(storage: str) -> None:
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    v = values()
    documents = document_table(torch.arange(LENGTH).expand(2, -1) % 30)
    for layer in range(10):
        mix = mixing(storage=storage, layer=layer)
        expected = mix(v, documents=documents)
        mix.compile(fullgraph=True, backend=counter)
        out = mix(v, documents=documents)
        torch.testing.assert_close(out, expected)
        grads = [torch.autograd.grad(o.square().sum(), v)[0] for o in (out, expected)]
        torch.testing.assert_close(*grads)
    assert counter.frame_count == 1


@pytest.mark.parametrize("storage", FORMS)
def test_a_copy_is_another_module_with_the_same_matrix(storage: str) -> None:
    mix, v = mixing(storage=storage), values()
    other = copy.deepcopy(mix)
    assert torch.equal(other(v), mix(v))
    for buffer in other.buffers():
        buffer.zero_()
    assert error(other(v), v) > 1e-2
    assert error(mix(v), v) < 1e-5


def test_a_state_dict_has_the_seed_and_a_fingerprint(tmp_path: Path) -> None:
    saved = nn.Sequential(mixing()).state_dict()
    assert {key: value.shape for key, value in saved.items()} == {"0._extra_state": (2,)}
    torch.save(saved, tmp_path / "weights.pt")
    saved = torch.load(tmp_path / "weights.pt", weights_only=True)
    nn.Sequential(mixing()).load_state_dict(saved)
    nn.Sequential(mixing(storage="generated", dtype=torch.bfloat16)).load_state_dict(saved)
    with pytest.raises(ConfigError, match=r"seed 5, and here it is 6: create .* with seed=5"):
        nn.Sequential(mixing(seed=6)).load_state_dict(saved)
    for change in ({"layer": 1}, {"recipe": "official"}, {"causal": False}, {"noise": "sign"}):
        with pytest.raises(ConfigError, match="the same seed but another mixing matrix"):
            nn.Sequential(mixing(**change)).load_state_dict(saved)


def test_a_change_of_the_generator_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    mix = mixing()
    saved = mix.state_dict()
    monkeypatch.setattr("mixit_titan.mixing.fingerprint", lambda *_: "0" * 16)
    with pytest.raises(ConfigError, match="or the version of mixit_titan"):
        mix.load_state_dict(saved)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"heads": 0}, "heads is 0"),
        ({"length": -1}, "length is -1"),
        ({"layer": -1}, "layer is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"storage": "sharded"}, "must be 'stored' or 'generated'"),
        ({"recipe": "papr"}, "did you mean 'paper'"),
        ({"heads": 2.5}, "heads is 2.5: it must be an integer"),
        ({"seed": "0"}, "seed is '0': it must be an integer"),
        ({"dtype": torch.int8}, "dtype is torch.int8: it must be a float dtype"),
        ({"dtype": "bfloat16"}, "dtype is 'bfloat16'"),
        ({"noise": "sing"}, "did you mean 'sign'"),
    ],
)
def test_wrong_arguments_are_one_sentence(change: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        RandomMixing(**{"heads": 2, "head_width": 4, "length": 8, "layer": 0} | change)


@pytest.mark.parametrize("storage", ["stored", "generated"])
@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            torch.ones(1, 8, 2, 4, dtype=torch.int64),
            "v is of torch.int64: it must",
        ),
        (torch.ones(1, 2, 8, 4), r"shape \(1, 2, 8, 4\): it must be \(batch, tokens, heads, head"),
        (torch.ones(1, 8, 8), "with 2 heads of 4, such as v.view"),
        (torch.ones(1, 8, 2, 5), "with 2 heads of 4"),
        (torch.ones(1, 9, 2, 4), "v has 9 tokens .* length is 8"),
    ],
)
def test_wrong_values_are_one_sentence(storage: str, values: torch.Tensor, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        RandomMixing(heads=2, head_width=4, length=8, layer=0, storage=storage)(values)


@pytest.mark.parametrize("storage", FORMS)
@pytest.mark.parametrize("shape", [(0, LENGTH), (2, 0)])
def test_nothing_to_mix(shape: tuple[int, int], storage: str) -> None:
    v = torch.zeros(*shape, HEADS, WIDTH)
    mix = mixing(storage=storage)
    assert mix(v).shape == mix(v, documents=table(*shape)).shape == v.shape


def table(batch: int, length: int) -> torch.Tensor:
    return document_table(torch.arange(length).repeat(batch, 1))


@pytest.mark.parametrize(
    "documents",
    [
        torch.arange(64).repeat(2, 1),  # positions
        table(2, 128),
        table(1, 64),
        table(4, 64),
        table(1, 128),  # as large as that of 2 rows of 64
    ],
)
def test_documents_of_another_batch_are_one_sentence(documents: torch.Tensor) -> None:
    """The product takes their rows and bounds for v's, and would write beyond it."""
    with pytest.raises(ConfigError, match="do not belong to v, with 2 rows of 64 tokens"):
        RandomMixing(heads=2, head_width=4, length=256, layer=0)(
            torch.ones(2, 64, 2, 4), documents=documents
        )


@pytest.mark.parametrize(
    ("positions", "said"),
    [
        (torch.tensor([[1, 2, 3]]), "count from 0"),
        (torch.tensor([[0, 1, 1]]), "count from 0"),
        (torch.tensor([[0, 0, 2]]), "count from 0"),
        (torch.tensor([[0.0, 1.0]]), "must be int64 or int32"),
        (torch.tensor([[0, 1]], dtype=torch.int16), "positions are torch.int16 of the shape"),
        (torch.tensor([0, 1]), r"\(batch, tokens\)"),
    ],
)
def test_positions_that_count_otherwise_are_one_sentence(
    positions: torch.Tensor, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        document_table(positions)


def test_the_example_learns() -> None:
    path = Path(__file__).parents[1] / "examples" / "nanogpt.py"
    spec = importlib.util.spec_from_file_location("nanogpt_example", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    losses = example.train(30)
    assert losses[0] > 4.5 and losses[-1] < 3.5


@pytest.mark.parametrize("storage", FORMS)
def test_fsdp_shards_the_model_around_it(forkserver: Forkserver, storage: str) -> None:
    forkserver.run_ranks(2, 1, fsdp_rank, storage, timeout=120)


def fsdp_rank(ports: list[int], storage: str) -> None:
    """Gradients of two ranks are those of one, and a state dict goes from one to the other."""
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        set_model_state_dict,
    )
    from torch.distributed.fsdp import fully_shard

    def model(seed: int = SEED) -> nn.Sequential:
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), mixing(storage=storage, seed=seed))

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    alone, v = model(), values().detach()
    with torch.device("meta"):
        sharded = model()
    fully_shard(sharded[0])
    fully_shard(sharded)
    sharded.to_empty(device="cpu")
    complete = StateDictOptions(full_state_dict=True)
    set_model_state_dict(sharded, alone.state_dict(), options=complete)
    rank = dist.get_rank()
    torch.testing.assert_close(sharded(v[rank : rank + 1]), alone(v)[rank : rank + 1])
    sharded(v[rank : rank + 1]).square().mean().backward()
    alone(v).square().mean().backward()
    ours = sharded[0].weight.grad.full_tensor()
    torch.testing.assert_close(ours, alone[0].weight.grad)
    saved = get_model_state_dict(sharded, options=StateDictOptions(full_state_dict=True))
    assert saved.keys() == alone.state_dict().keys()
    model().load_state_dict(saved)
    with pytest.raises(ConfigError, match="seed 5, and here it is 7"):
        model(seed=7).load_state_dict(saved)
    dist.destroy_process_group()
