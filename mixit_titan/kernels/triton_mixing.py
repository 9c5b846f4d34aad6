"""The kernels of the generated form: a tile of A is drawn in registers and multiplied at once.

A program of the forward product owns some rows of the output for one head, and draws the columns
that they see in groups of 128: one Philox call gives four neighbouring strips of 32 columns
(mixing.py). A program of the transposed product owns 128 columns and draws the rows below them.

Drawing costs some 40 instructions an element, and a tensor core multiplies an element with 128
columns in the time of a few: the kernel is bound by drawing. So a program multiplies a drawn tile
with as many columns as its registers hold, which means several sequences of the batch at once. With
documents the sequences of a batch differ in what they see, and a program has one of them.

Documents are walked one by one: tiles are aligned to the beginning of a document, since positions
are what A is drawn from, and rows of other documents are masked.

Shapes: B batch, L length, N heads, H head width, C columns of v (sequences times H).
"""

import torch
import triton
import triton.language as tl

# For an H100 with 8 warps, by what ptxas reports of the bfloat16 kernels for sm_90: larger
# accumulators spill registers (64 x 256: 432 bytes a thread, 128 x 256: 1420).
_ROWS, _ROWS_TRANSPOSED = 64, 32
_COLUMNS = {2: 128, 4: 64, 8: 32}  # by bytes of an element of v
_WARPS = 8
# The interpreter of Triton 3.7 multiplies the bits of bfloat16 numbers.
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def _draw(key, head, rows_R, group, ROWS: tl.constexpr):
    """W[rows, 128 group ... + 128] of shape (ROWS, 128)."""
    seed = tl.load(key)
    layer = tl.load(key + 1).to(tl.int32)
    zero = tl.zeros((ROWS, 32), tl.int32)
    c0 = (group * 32 + tl.arange(0, 32))[None, :] + zero
    c1 = rows_R[:, None].to(tl.int32) + zero
    w0, w1, w2, w3 = tl.philox(seed, c0, c1, zero + head, zero + layer)
    n0, n1 = tl.pair_uniform_to_normal(tl.uint_to_uniform_float(w0), tl.uint_to_uniform_float(w1))
    n2, n3 = tl.pair_uniform_to_normal(tl.uint_to_uniform_float(w2), tl.uint_to_uniform_float(w3))
    # (ROWS, 32, a, b) holds strip 2b + a: put the strips side by side.
    joined = tl.join(tl.join(n0, n1), tl.join(n2, n3))
    return tl.reshape(tl.permute(joined, (0, 3, 2, 1)), (ROWS, 128))


@triton.jit
def _tile(
    key,
    means,
    std,
    n,
    rows_R,
    inside_R,
    group,
    columns,
    ROWS: tl.constexpr,
    CAUSAL: tl.constexpr,
    IDENTITY: tl.constexpr,
    SINK: tl.constexpr,
):
    """A[rows, group], less the identity, by positions; zero outside of a document's `columns`."""
    head = (tl.load(key + 2) + n).to(tl.int32)
    mean_R = tl.load(means + rows_R, mask=inside_R, other=0.0)
    a = std * (_draw(key, head, rows_R, group, ROWS) - mean_R[:, None])
    columns_K = group * 128 + tl.arange(0, 128)
    if SINK:
        diagonal = columns_K[None, :] == rows_R[:, None]
        sink = tl.where(diagonal | (columns_K[None, :] == 0), 0.5, 0.0)
        if IDENTITY:
            sink = sink - tl.where(diagonal, 1.0, 0.0)
        a = tl.where(head == 0, sink, a)
    visible = inside_R[:, None] & (columns_K < columns)[None, :]
    if CAUSAL:
        visible = visible & (columns_K[None, :] <= rows_R[:, None])
    return tl.where(visible, a, 0.0)


@triton.jit
def _multiply(a, values, acc):
    """acc + a values, in the precision of the values: no TF32."""
    if INTERPRETED:
        return tl.dot(
            a.to(values.dtype).to(acc.dtype), values.to(acc.dtype), acc, out_dtype=acc.dtype
        )
    return tl.dot(a.to(values.dtype), values, acc, input_precision="ieee", out_dtype=acc.dtype)


@triton.jit
def _columns(n, length, batch, heads, BATCHES: tl.constexpr, WIDTH: tl.constexpr, C: tl.constexpr):
    """Where the columns of this program begin in v and out, which are (B, L, N, H), and which of
    them exist."""
    c = tl.arange(0, C)
    sequence = tl.program_id(2) * BATCHES + c // WIDTH
    column_C = (sequence.to(tl.int64) * length * heads + n) * WIDTH + c % WIDTH
    return column_C, (c < BATCHES * WIDTH) & (sequence < batch)


@triton.jit
def _zeros(v, R: tl.constexpr, C: tl.constexpr):
    return tl.zeros((R, C), tl.float64 if v.dtype.element_ty == tl.float64 else tl.float32)


@triton.jit
def _write(acc, v, out, place, mask, IDENTITY: tl.constexpr):
    if IDENTITY:
        acc += tl.load(v + place, mask=mask, other=0.0).to(acc.dtype)
    tl.store(out + place, acc.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _forward(
    v,
    out,
    key,
    means,
    stds,
    starts,
    ends,
    length,
    longest,
    batch,
    heads,
    bounds_stride,
    BATCHES: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CAUSAL: tl.constexpr,
    IDENTITY: tl.constexpr,
    SINK: tl.constexpr,
):
    n = tl.program_id(1)
    index_R = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    bounds = tl.program_id(2) * BATCHES * bounds_stride + index_R
    start_R = tl.load(starts + bounds, mask=index_R < length, other=length).to(tl.int32)
    end_R = tl.load(ends + bounds, mask=index_R < length, other=0).to(tl.int32)
    std = tl.load(stds + n)
    column_C, exists_C = _columns(n, length, batch, heads, BATCHES, WIDTH, COLUMNS)

    acc = _zeros(v, ROWS, COLUMNS)
    document = tl.min(start_R)
    while document < length:
        inside_R = start_R == document
        if CAUSAL:
            end = tl.max(tl.where(inside_R, index_R, 0)) + 1
        else:
            end = tl.max(tl.where(inside_R, end_R, 0))
        for group in range(0, tl.cdiv(end - document, 128)):
            a = _tile(
                key,
                means + n * longest,
                std,
                n,
                index_R - document,
                inside_R,
                group,
                end - document,
                ROWS,
                CAUSAL,
                IDENTITY,
                SINK,
            )
            index_K = document + group * 128 + tl.arange(0, 128)
            values = tl.load(
                v + index_K.to(tl.int64)[:, None] * (heads * WIDTH) + column_C[None, :],
                mask=(index_K < end)[:, None] & exists_C[None, :],
                other=0.0,
            )
            acc = _multiply(a, values, acc)
        document = tl.min(tl.where(start_R > document, start_R, length))

    place = index_R.to(tl.int64)[:, None] * (heads * WIDTH) + column_C[None, :]
    mask = (index_R < length)[:, None] & exists_C[None, :]
    _write(acc, v, out, place, mask, IDENTITY)


@triton.jit
def _transposed(
    v,
    out,
    key,
    means,
    stds,
    starts,
    ends,
    length,
    longest,
    batch,
    heads,
    bounds_stride,
    BATCHES: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CAUSAL: tl.constexpr,
    IDENTITY: tl.constexpr,
    SINK: tl.constexpr,
):
    n = tl.program_id(1)
    block = tl.program_id(0) * 128
    index_K = block + tl.arange(0, 128)
    bounds = tl.program_id(2) * BATCHES * bounds_stride + index_K
    start_K = tl.load(starts + bounds, mask=index_K < length, other=length).to(tl.int32)
    end_K = tl.load(ends + bounds, mask=index_K < length, other=0).to(tl.int32)
    std = tl.load(stds + n)
    column_C, exists_C = _columns(n, length, batch, heads, BATCHES, WIDTH, COLUMNS)

    document = tl.min(start_K)
    while document < length:
        inside_K = start_K == document
        end = tl.max(tl.where(inside_K, end_K, 0))
        last = tl.max(tl.where(inside_K, index_K, 0)) - document
        # A block can meet two groups of a document that begins elsewhere than at a multiple of 128.
        for group in range((tl.maximum(block, document) - document) // 128, last // 128 + 1):
            acc = _zeros(v, 128, COLUMNS)
            if CAUSAL:
                top = document + group * 128
            else:
                top = document
            for row in range(top, end, ROWS):
                index_R = row + tl.arange(0, ROWS)
                a = _tile(
                    key,
                    means + n * longest,
                    std,
                    n,
                    index_R - document,
                    index_R < end,
                    group,
                    end - document,
                    ROWS,
                    CAUSAL,
                    IDENTITY,
                    SINK,
                )
                values = tl.load(
                    v + index_R.to(tl.int64)[:, None] * (heads * WIDTH) + column_C[None, :],
                    mask=(index_R < end)[:, None] & exists_C[None, :],
                    other=0.0,
                )
                acc = _multiply(tl.trans(a), values, acc)
            target_K = document + group * 128 + tl.arange(0, 128)
            ours = (target_K >= block) & (target_K < block + 128) & (target_K < end)
            place = target_K.to(tl.int64)[:, None] * (heads * WIDTH) + column_C[None, :]
            _write(acc, v, out, place, ours[:, None] & exists_C[None, :], IDENTITY)
        document = tl.min(tl.where(start_K > document, start_K, length))


def launch(
    v_BLNH: torch.Tensor,
    key: torch.Tensor,
    means_NM: torch.Tensor,
    stds_N: torch.Tensor,
    bounds: tuple[torch.Tensor, torch.Tensor] | None,
    causal: bool,
    identity: bool,
    sink_head: bool,
    transposed: bool,
) -> torch.Tensor:
    """A v or A^T v. `bounds`: starts and ends of documents, each (B, L); None: whole rows."""
    batch, length, heads, width = v_BLNH.shape
    columns = max(_COLUMNS[v_BLNH.element_size()], triton.next_power_of_2(width))
    batches = 1 if bounds else max(1, min(batch, columns // width))
    if bounds is None:
        start = torch.zeros(length, dtype=torch.int64, device=v_BLNH.device)
        bounds = (start, torch.full_like(start, length))
    starts, ends = bounds
    out_BLNH = torch.empty_like(v_BLNH)
    kernel, owned, rows = (
        (_transposed, 128, _ROWS_TRANSPOSED) if transposed else (_forward, _ROWS, _ROWS)
    )
    kernel[(triton.cdiv(length, owned), heads, triton.cdiv(batch, batches))](
        v_BLNH,
        out_BLNH,
        key,
        means_NM,
        stds_N,
        starts,
        ends,
        length,
        means_NM.shape[1],
        batch,
        heads,
        length if starts.ndim == 2 else 0,
        BATCHES=batches,
        WIDTH=width,
        ROWS=rows,
        COLUMNS=max(16, triton.next_power_of_2(batches * width)),
        CAUSAL=causal,
        IDENTITY=identity,
        SINK=sink_head,
        num_warps=_WARPS,
        num_stages=2,
    )
    return out_BLNH
