"""The product with a matrix that is kept in memory.

On a GPU a Triton kernel reads it tile by tile (triton_mixing.py), and of a causal matrix only the
lower triangle: tiles of 128 x 128, those of a block of rows one after another. In float32 and
bfloat16 on a CPU there is a compiled product (triangle.c). Otherwise torch is used: the batch is
folded into the columns, so that each head is one product, and documents are copied. The rows are
taken in strips: a strip multiplies no more than what it sees, so that the zero half is skipped but
for the blocks on the diagonal. All heads of a strip are one `bmm`.

On a CPU the zero half of the square is put to use: with one strip more of columns it holds the
transpose, so that the backward product reads rows too. To read columns, of which a strip has few,
would touch a page of memory for every row.

    row x of strip i ... i + S:   A[x, 0 ... i + S]   A[i ... m, x]
    columns:                      0 ... i + S         i + S ... m + S

Shapes: B batch, L length, N heads, H head width; C columns, those of all sequences side by side; S
rows of a strip, K columns of A that it sees; T tiles of E x E.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import _get_current_dispatch_mode

from mixit_titan.kernels.documents import document_spans
from mixit_titan.kernels.forms import BLOCK, packed_tiles
from mixit_titan.kernels.gpu import by_triton, mix_stored
from mixit_titan.kernels.mixing import MatrixSpec, draw_rows, mixing_matrix
from mixit_titan.kernels.triangle import compiled_mix, is_faster

_STRIP = 128  # rows; small strips waste less on the diagonal


def identity_apart(spec: MatrixSpec, dtype: torch.dtype) -> bool:
    """In bfloat16 a 1 on the diagonal would absorb the noise next to it, so A - I is kept, and the
    product adds v."""
    return spec.identity and dtype.itemsize < 4


def stored_matrix(
    spec: MatrixSpec, layer: int, heads: range, *, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Return the matrix that `stored_mix` takes."""
    if spec.causal and by_triton(device):
        return _packed_matrix(spec, layer, heads, dtype, device)
    return keep(mixing_matrix(spec, layer, heads, device=device), spec, dtype)


def _packed_matrix(
    spec: MatrixSpec, layer: int, heads: range, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Return (N, T, E, E), drawn by blocks of rows, so that only one block at a time is in
    float32."""
    shape = (len(heads), packed_tiles(spec.length), BLOCK, BLOCK)
    packed_NTEE = torch.zeros(shape, dtype=dtype, device=device)
    apart = identity_apart(spec, dtype)
    for first in range(0, spec.length, BLOCK):
        last = min(first + BLOCK, spec.length)
        rows = torch.arange(first, last, device=device)
        drawn_NRL = draw_rows(spec, layer, heads, rows, last, less_identity=apart).to(dtype)
        for tile, column in enumerate(range(0, last, BLOCK), packed_tiles(first)):
            part = drawn_NRL[:, :, column : column + BLOCK]
            packed_NTEE[:, tile, : last - first, : part.shape[2]] = part
    return packed_NTEE


def stored_rows(matrix: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """Return rows first to last of a stored causal A, up to column `last`: (N, R, last)."""
    if matrix.ndim == 3:
        # To the right of the diagonal it may hold its transpose.
        return matrix[:, first:last, :last].tril(first)
    strips = []
    for top in range(first // BLOCK * BLOCK, last, BLOCK):
        begin, end = packed_tiles(top), packed_tiles(top + BLOCK)
        tiles_NTRE = matrix[:, begin:end, max(first - top, 0) : min(last - top, BLOCK)]
        strip_NRK = tiles_NTRE.transpose(1, 2).flatten(2)[..., :last]
        strips.append(F.pad(strip_NRK, (0, last - strip_NRK.shape[2])))
    return torch.cat(strips, dim=1)


def has_transpose(spec: MatrixSpec, device: torch.device) -> bool:
    """Return whether a matrix of `stored_matrix` has its transpose in the same rows."""
    return spec.causal and not by_triton(device)


def stored_columns(spec: MatrixSpec, device: torch.device) -> int:
    """Return how many columns a matrix of `stored_matrix` has. With its transpose the number is
    even, so that pairs of bfloat16 can be read, and rows are not a multiple of 4096 bytes, which
    would map the same columns of all rows to the same set of the L1 cache."""
    if not has_transpose(spec, device):
        return spec.length
    columns = spec.length + _STRIP + spec.length % 2
    return columns if columns % 1024 else columns + 16


def keep(a_NLL: torch.Tensor, spec: MatrixSpec, dtype: torch.dtype) -> torch.Tensor:
    """Store A, or A - I, in `dtype`, with its transpose where `has_transpose` says so."""
    if identity_apart(spec, dtype):
        a_NLL = a_NLL - torch.eye(a_NLL.shape[1], device=a_NLL.device)
    a_NLL = a_NLL.to(dtype)
    if not has_transpose(spec, a_NLL.device):
        return a_NLL
    heads, length, _ = a_NLL.shape
    kept = a_NLL.new_zeros(heads, length, stored_columns(spec, a_NLL.device))
    kept[..., :length] = a_NLL
    for i, j in _strips(length):
        kept[:, i:j, i + _STRIP : length + _STRIP] = a_NLL[:, i:, i:j].transpose(1, 2)
    return kept


# Defined by hand, with a Function around it: custom_op's own gradient takes longer to call, which
# shows at length 256.
_library = torch.library.Library("mixit_titan", "FRAGMENT")
_library.define(
    "stored_mix(Tensor v, Tensor matrix, Tensor? documents, bool causal, bool with_transpose, "
    "bool add_v, bool transposed) -> Tensor"
)


def _stored_mix(
    v_BLNH: torch.Tensor,
    matrix_NLL: torch.Tensor,
    documents: torch.Tensor | None,
    causal: bool,
    with_transpose: bool,
    add_v: bool,
    transposed: bool,
) -> torch.Tensor:
    """Return A v, or A^T v if `transposed`; v is added if the matrix is kept without its identity.
    `documents` is a `document_table`; None: one document per row."""
    if by_triton(v_BLNH.device):
        return mix_stored(v_BLNH, matrix_NLL, documents, causal, add_v, transposed)
    out_BLNH = torch.empty_like(v_BLNH, memory_format=torch.contiguous_format)
    # What follows need not be seen by autograd, which would track each of its views: that shows at
    # length 256. There is no public way to say so.
    with torch._C._AutoDispatchBelowAutograd():
        matrix_NLL = matrix_NLL.to(v_BLNH.dtype)
        _mix(out_BLNH, matrix_NLL, v_BLNH, documents, causal, with_transpose, add_v, transposed)
    return out_BLNH


def _fake(
    v_BLNH: torch.Tensor, matrix_NLL: torch.Tensor, documents: torch.Tensor | None, *_: bool
) -> torch.Tensor:
    return torch.empty_like(v_BLNH, memory_format=torch.contiguous_format)


_library.impl("stored_mix", _stored_mix, "CPU")
_library.impl("stored_mix", _stored_mix, "CUDA")
torch.library.register_fake("mixit_titan::stored_mix", _fake, lib=_library)


def _mixer() -> Callable[..., torch.Tensor]:
    """Return the operator for whoever inspects operators, such as a compiler or selective
    checkpointing; otherwise return the function behind it, since dispatching shows at length
    256."""
    watched = torch.compiler.is_compiling() or _get_current_dispatch_mode() is not None
    return torch.ops.mixit_titan.stored_mix if watched else _stored_mix


class StoredMix(torch.autograd.Function):
    """`stored_mix` with its gradient, the product with the transpose."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        v_BLNH: torch.Tensor,
        matrix_NLL: torch.Tensor,
        documents: torch.Tensor | None,
        *flags: bool,
    ) -> torch.Tensor:
        ctx.save_for_backward(matrix_NLL, documents)
        ctx.flags = flags
        return _mixer()(v_BLNH, matrix_NLL, documents, *flags)

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, grad_BLNH: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        matrix_NLL, documents = ctx.saved_tensors
        *flags, transposed = ctx.flags
        # Only a second derivative needs a gradient here.
        mix = StoredMix.apply if torch.is_grad_enabled() else _mixer()
        grad = mix(grad_BLNH, matrix_NLL, documents, *flags, not transposed)
        return grad, None, None, None, None, None, None


def _mix(
    out_BLNH: torch.Tensor,
    a_NLL: torch.Tensor,
    v_BLNH: torch.Tensor,
    documents: torch.Tensor | None,
    causal: bool,
    with_transpose: bool,
    add_v: bool,
    transposed: bool,
) -> None:
    """Write one product into `out`."""
    in_c = with_transpose and v_BLNH.device.type == "cpu" and is_faster(v_BLNH.dtype)
    if in_c and (mix := compiled_mix()) is not None:
        column = _STRIP if transposed else 0
        mix(out_BLNH, a_NLL, v_BLNH, documents, column, add_v, transposed)
        return
    flags = (causal, with_transpose, add_v, transposed)
    if documents is None:
        _mix_rows(out_BLNH, a_NLL, v_BLNH, *flags)
        return
    for (start, end), rows in document_spans(documents).items():
        document = v_BLNH[rows, start:end]
        mixed = torch.empty_like(document)
        _mix_rows(mixed, a_NLL, document, *flags)
        out_BLNH[rows, start:end] = mixed


def _mix_rows(
    out_BLNH: torch.Tensor,
    a_NLL: torch.Tensor,
    v_BLNH: torch.Tensor,
    causal: bool,
    with_transpose: bool,
    add_v: bool,
    transposed: bool,
) -> None:
    """Write one product of one-document rows by torch."""
    batch, length, heads, width = v_BLNH.shape
    v_NLC = v_BLNH.permute(2, 1, 0, 3).reshape(heads, length, batch * width)
    mixed_NSC = None
    for i, j in _strips(length) if causal else [(0, length)]:
        if mixed_NSC is None or mixed_NSC.shape[1] != j - i:
            # One for all strips but the last: it stays in the cache.
            mixed_NSC = v_NLC.new_empty(heads, j - i, batch * width)
            mixed_BSNH = mixed_NSC.view(heads, j - i, batch, width).permute(2, 1, 0, 3)
        a_NSK, seen = _strip(a_NLL, i, j, length, causal, with_transpose, transposed)
        torch.bmm(a_NSK, v_NLC[:, seen], out=mixed_NSC)  # contiguous, or else head after head
        if add_v:
            torch.add(v_BLNH[:, i:j], mixed_BSNH, out=out_BLNH[:, i:j])
        else:
            out_BLNH[:, i:j].copy_(mixed_BSNH)


def _strip(
    a_NLL: torch.Tensor,
    i: int,
    j: int,
    length: int,
    causal: bool,
    with_transpose: bool,
    transposed: bool,
) -> tuple[torch.Tensor, slice]:
    """Return rows i to j of A or A^T without the columns they do not see, and which columns those
    are."""
    if not transposed:
        seen = slice(0, j if causal else length)
        return a_NLL[:, i:j, seen], seen
    seen = slice(i if causal else 0, length)
    if with_transpose:
        return a_NLL[:, i:j, i + _STRIP : length + _STRIP], seen
    return a_NLL[:, seen, i:j].transpose(1, 2), seen


def _strips(length: int) -> list[tuple[int, int]]:
    return [(i, min(i + _STRIP, length)) for i in range(0, length, _STRIP)]
