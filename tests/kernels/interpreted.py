"""Runs the Triton kernels in the interpreter and prints their errors as JSON: case -> numbers.

A process of its own, because Triton decides when it is imported: TRITON_INTERPRET=1 python THIS.
"""

import json

import torch
import triton
import triton.language as tl

from mixit_titan.kernels.causal_mix import causal_mix, mixing_state
from mixit_titan.kernels.documents import same_document
from mixit_titan.kernels.mixing import MatrixSpec, mixing_matrix
from mixit_titan.kernels.philox import normals, philox

# name: length, documents, first head, sink head, causal, dtype. A block has 64 rows, 128 columns.
CASES = {
    "second column block": (150, None, 0, False, True, torch.float32),
    "first head is not 0": (70, None, 3, True, True, torch.float32),
    "sink head": (70, None, 0, True, True, torch.float32),
    "not causal": (140, None, 0, True, False, torch.float32),
    "document begins within a block": (150, (37, 100, 13), 1, False, True, torch.float32),
    "documents, not causal": (140, (30, 1, 109), 0, True, False, torch.float32),
    "one token": (1, None, 0, False, True, torch.float32),
    "two tokens": (2, None, 0, False, True, torch.float32),
    "bfloat16": (140, None, 0, False, True, torch.bfloat16),
    "bfloat16, sink and documents": (70, (60, 10), 0, True, True, torch.bfloat16),
    "float64": (70, None, 0, False, True, torch.float64),
}


def errors(
    length: int,
    documents: tuple | None,
    first_head: int,
    sink_head: bool,
    causal: bool,
    dtype: torch.dtype,
) -> list[float]:
    """Relative errors of the product and of its gradient."""
    spec = MatrixSpec(
        seed=(5 << 32) + 9,
        length=160,
        std_low=0.1,
        std_high=0.3,
        identity=not sink_head or causal,
        sink_head=sink_head,
        causal=causal,
    )
    heads = range(first_head, first_head + 2)
    torch.manual_seed(0)
    v, grad = (torch.randn(3, length, 2, 5).to(dtype) for _ in range(2))
    positions = None
    a = mixing_matrix(spec, 1, heads).double()[:, None, :length, :length]
    if documents:
        packed = torch.cat([torch.arange(size) for size in documents])
        positions = torch.stack([packed, torch.arange(length), packed])
        pairs = (positions.unsqueeze(2), positions.unsqueeze(1))
        a = mixing_matrix(spec, 1, heads).double()[:, *pairs] * same_document(positions)
    a = a.expand(-1, 3, -1, -1)
    state = mixing_state("generated", spec, 1, heads, dtype=dtype, device=torch.device("cpu"))
    v.requires_grad_()
    out = causal_mix(v, "generated", spec, state, positions)
    (ours,) = torch.autograd.grad(out, v, grad)
    expected = torch.einsum("nbij,bjnh->binh", a, v.detach().double())
    expected_grad = torch.einsum("nbij,binh->bjnh", a, grad.double())
    pairs = ((out.detach(), expected), (ours, expected_grad))
    return [float((x.double() - y).abs().max() / y.abs().max()) for x, y in pairs]


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
    found = {name: errors(*case) for name, case in CASES.items()}
    print(json.dumps({"generator": generator_differences(), **found}))
