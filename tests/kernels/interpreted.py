"""Runs the Triton kernels in the interpreter and prints their errors as JSON: case -> numbers.

A process of its own, because Triton decides when it is imported: TRITON_INTERPRET=1 python THIS.
"""

import itertools
import json
from dataclasses import dataclass
from unittest import mock

import torch
import triton
import triton.language as tl

from mixit_titan.kernels import stored, triton_noise
from mixit_titan.kernels.causal_mix import causal_mix, mixing_state
from mixit_titan.kernels.documents import document_table
from mixit_titan.kernels.mixing import MatrixSpec, mixing_matrix, row_means
from mixit_titan.kernels.philox import normals, philox

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Case:
    """Rows of documents, each given by its length; None: `batch` rows of one document each."""

    documents: tuple[tuple[int, ...], ...] | None = None
    batch: int = 2
    length: int = 140
    width: int = 5
    first_head: int = 0
    sink_head: bool = False
    causal: bool = True
    identity: bool = True
    noise: str = "gaussian"
    dtype: torch.dtype = torch.float32
    strided: bool = False


BF16 = torch.bfloat16
# A block has 128 positions; a step 16 of the others in float32, 32 (drawn) or 64 (stored) in bf16.
CASES = {
    "several blocks": Case(length=290, batch=1),
    "one token": Case(length=1),
    "first head is not 0": Case(length=70, first_head=3, sink_head=True),
    "sink head without identity": Case(length=140, sink_head=True, identity=False),
    "not causal": Case(causal=False, sink_head=True, batch=1),
    "batch of 64": Case(batch=64, length=9),
    "documents": Case(documents=((37, 210, 13), (260,))),
    "documents of one token": Case(documents=((1,) * 20, (20,), (3, *[1] * 17))),
    "a row of padding": Case(documents=((135,), (1,) * 135)),
    "documents with a sink head": Case(documents=((150, 20), (1, 169)), sink_head=True),
    "documents, not causal, sink": Case(
        documents=((140, 10), (20, 130)), causal=False, sink_head=True
    ),
    "width 24, strided": Case(width=24, strided=True, documents=((100, 40), (140,))),
    "width 200": Case(width=200, batch=1, length=130),
    "bfloat16": Case(length=290, batch=1, dtype=BF16),
    "bfloat16, width 80, documents": Case(width=80, documents=((37, 143), (129, 51)), dtype=BF16),
    "bfloat16, sink and documents": Case(
        documents=((150, 40), (190,)), sink_head=True, dtype=BF16, strided=True
    ),
    "bfloat16, not causal": Case(documents=((150, 40), (190,)), causal=False, dtype=BF16),
    "signs, documents": Case(documents=((37, 210, 13), (260,)), noise="sign"),
    "signs, sink": Case(documents=((150, 20), (1, 169)), sink_head=True, noise="sign"),
    "signs, not causal, sink": Case(causal=False, sink_head=True, batch=1, noise="sign"),
    "signs, without identity": Case(length=70, first_head=3, identity=False, noise="sign"),
    "signs, bfloat16": Case(documents=((150, 140), (290,)), dtype=BF16, noise="sign"),
    "signs, bfloat16, not causal": Case(
        length=290, batch=1, causal=False, dtype=BF16, noise="sign"
    ),
    "float64": Case(length=70, dtype=torch.float64),
}


def matrix_spec(case: Case) -> MatrixSpec:
    return MatrixSpec(
        seed=(5 << 32) + 9,
        length=300,
        std_low=0.1,
        std_high=0.3,
        identity=case.identity,
        sink_head=case.sink_head,
        causal=case.causal,
        noise=case.noise,
    )


def tensors(case: Case, batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """v and its gradient, if strided as views of something larger."""
    torch.manual_seed(0)
    shape = (batch, length, 2, case.width)
    if not case.strided:
        return torch.randn(shape).to(case.dtype), torch.randn(shape).to(case.dtype)
    v = torch.randn(batch, length, 5, case.width + 3).to(case.dtype)[:, :, 1:3, 2:-1]
    return v, torch.randn(batch, 2, length, case.width).to(case.dtype).transpose(1, 2)


def errors(case: Case, form: str, *, packed: bool = True) -> list[float]:
    """Relative errors of the product and of its gradient, against float64 by documents. Without
    `packed` a stored matrix is as on a CPU, from which it may have been moved."""
    rows = case.documents or ((case.length,),) * case.batch
    v, grad = tensors(case, len(rows), sum(rows[0]))
    spec, heads = matrix_spec(case), range(case.first_head, case.first_head + 2)
    a = mixing_matrix(spec, 1, heads).double()
    expected, expected_grad = torch.zeros(v.shape).double(), torch.zeros(v.shape).double()
    for row, sizes in enumerate(rows):
        start = 0
        for size in sizes:
            place = (row, slice(start, start + size))
            corner = a[:, :size, :size]
            expected[place] = torch.einsum("nij,jnh->inh", corner, v[place].double())
            expected_grad[place] = torch.einsum("nij,inh->jnh", corner, grad[place].double())
            start += size
    documents = None
    if case.documents:
        positions = [torch.cat([torch.arange(size) for size in sizes]) for sizes in rows]
        documents = document_table(torch.stack(positions))
    with mock.patch.object(stored, "by_triton", lambda _: packed):
        state = mixing_state(form, spec, 1, heads, dtype=case.dtype, device=CPU)
    v.requires_grad_()
    out = causal_mix(v, form, spec, state, documents)
    (ours,) = torch.autograd.grad(out, v, grad)
    pairs = ((out.detach(), expected), (ours, expected_grad))
    return [float((x.double() - y).abs().max() / y.abs().max()) for x, y in pairs]


def gradients_are_those_of_the_sums() -> list[float]:
    """Raises where they are not."""
    documents = document_table(torch.tensor([[0, 1, 2, 0, 1]]))
    case = Case(sink_head=True)
    for form in ("stored", "generated"):
        spec = matrix_spec(case)
        state = mixing_state(form, spec, 1, range(2), dtype=torch.float64, device=CPU)
        v = torch.randn(1, 5, 2, 3, dtype=torch.float64, requires_grad=True)
        torch.autograd.gradcheck(
            lambda v, form=form, spec=spec, state=state: causal_mix(
                v, form, spec, state, documents
            ),
            v,
            fast_mode=True,
        )
    return [0.0]


def row_mean_differences() -> list[float]:
    """From those of torch, causal and not, of normals and of signs."""
    found = []
    for causal, noise in itertools.product((True, False), ("gaussian", "sign")):
        spec = matrix_spec(Case(causal=causal, noise=noise))
        key = torch.tensor([spec.seed, 1, 3])
        ours = triton_noise.row_means(key, 2, spec.length, causal, noise == "sign")
        found.append(float((ours - row_means(spec, 1, range(3, 5), CPU)).abs().max()))
    return found


@triton.jit
def _tl_randn(words, numbers, seed) -> None:  # noqa: ANN001
    offset = tl.arange(0, 256)
    w0, w1, w2, w3 = tl.randint4x(seed, offset)
    tl.store(words + offset, w0)
    tl.store(words + 256 + offset, w1)
    tl.store(words + 512 + offset, w2)
    tl.store(words + 768 + offset, w3)
    n0, n1, n2, n3 = tl.randn4x(seed, offset)
    tl.store(numbers + offset, n0)
    tl.store(numbers + 256 + offset, n1)
    tl.store(numbers + 512 + offset, n2)
    tl.store(numbers + 768 + offset, n3)


def generator_differences() -> list[float]:
    """Words that differ from Triton's, and the largest difference of the normals."""
    seed = (77 << 32) + 5
    words, numbers = torch.empty(4, 256, dtype=torch.int32), torch.empty(4, 256)
    _tl_randn[(1,)](words, numbers, seed)
    ours = philox(seed, torch.arange(256), 0, 0, 0)
    different = sum(
        int(((theirs.long() & 0xFFFFFFFF) != mine).sum())
        for theirs, mine in zip(words, ours, strict=True)
    )
    return [different, float((numbers - torch.stack(normals(ours))).abs().max())]


if __name__ == "__main__":
    found = {
        f"{form}: {name}": errors(case, form)
        for name, case in CASES.items()
        for form in ("stored", "generated")
    }
    for name in ("documents", "bfloat16, sink and documents"):
        found[f"moved: {name}"] = errors(CASES[name], "stored", packed=False)
    found |= {"generator": generator_differences(), "row means": row_mean_differences()}
    print(json.dumps(found | {"gradcheck": gradients_are_those_of_the_sums()}))
