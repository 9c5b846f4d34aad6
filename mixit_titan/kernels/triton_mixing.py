"""The product on a GPU, in position space.

A document of n tokens is mixed by the corner A[:n, :n], in whatever row it lies. So a tile of A is
taken once, from memory (stored) or drawn (generated), and multiplied with the blocks of several
documents side by side. v is read and out is written where they are.

A program has some rows of the output, `owned`, of one block of 128 positions, in GROUP documents
that reach it (documents.py has them in a table), for one head. It walks over the others, `k`: the
columns of A that its rows see, or for the transposed product the rows that see its columns. Inside,
neither the diagonal nor the end of a document is near, and nothing is masked.

Shapes: B batch, L length, N heads, H head width, C columns (documents times padded width), R owned
rows, K of the others at a time, M the longest length.
"""

import torch
import triton
import triton.language as tl

from mixit_titan.kernels.triton_noise import INTERPRETED, column_order, draw


@triton.jit
def _order(K: tl.constexpr, PLAIN: tl.constexpr):
    return tl.arange(0, K) if PLAIN else column_order(K)


@triton.jit
def _place(k, K: tl.constexpr, PLAIN: tl.constexpr):
    """The first position of step k: a drawn step takes a part of each of four strips."""
    return k if PLAIN else k // 128 * 128 + k % 128 // 4


@triton.jit
def _tile(matrix, matrix_l, key, means, std, head, m, owned_R, start, k, R: tl.constexpr, K: tl.constexpr,
          EDGE: tl.constexpr, CAUSAL: tl.constexpr, IDENTITY: tl.constexpr, SINK: tl.constexpr,
          TRANSPOSED: tl.constexpr, STORED: tl.constexpr):
    """A[owned, k], or A[k, owned] transposed, less the identity if IDENTITY: (R, K)."""
    other_K = k + _order(K, TRANSPOSED or STORED)
    if TRANSPOSED:
        rows, columns = other_K, owned_R
    else:
        rows, columns = owned_R, other_K
    inside = tl.minimum(rows, m - 1)  # those below are of no document
    if STORED:
        at = matrix + inside.to(tl.int64)[:, None] * matrix_l + columns[None, :]
        if EDGE:
            a = tl.load(at, mask=(columns < m)[None, :], other=0.0)
        else:
            a = tl.load(at)
    else:
        mean = tl.load(means + inside)
        if TRANSPOSED:
            a = draw(key, head, rows, start, std, std * mean, K, R)
        else:
            a = draw(key, head, rows, k, std, std * mean, R, K)
    if EDGE:
        diagonal = columns[None, :] == rows[:, None]
        if SINK:
            sink = tl.where(diagonal | (columns[None, :] == 0), 0.5, 0.0)
            if IDENTITY:
                sink = sink - tl.where(diagonal, 1.0, 0.0)
            a = tl.where(head == 0, sink, a)
        if CAUSAL:
            a = tl.where(columns[None, :] <= rows[:, None], a, 0.0)
    return tl.trans(a) if TRANSPOSED else a


@triton.jit
def _multiply(a, values, acc):
    """acc + a values, in the precision of the values: no TF32."""
    if INTERPRETED:
        return tl.dot(
            a.to(values.dtype).to(acc.dtype), values.to(acc.dtype), acc, out_dtype=acc.dtype
        )
    return tl.dot(a.to(values.dtype), values, acc, input_precision="ieee", out_dtype=acc.dtype)


@triton.jit
def mix(
    v, out, documents, matrix, key, means, stds,
    batch, length, m, v_b, v_l, v_n, matrix_n, matrix_l,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, GROUP: tl.constexpr, R: tl.constexpr, K: tl.constexpr,
    CAUSAL: tl.constexpr, IDENTITY: tl.constexpr, SINK: tl.constexpr, TRANSPOSED: tl.constexpr,
    STAGES: tl.constexpr,
):
    n, heads = tl.program_id(0), tl.num_programs(0)
    STORED: tl.constexpr = matrix is not None
    PARTS: tl.constexpr = 128 // R
    C: tl.constexpr = GROUP * PADDED
    PLAIN: tl.constexpr = STORED or TRANSPOSED
    STEP: tl.constexpr = K if PLAIN else 128
    c = tl.arange(0, C)
    width_C = c % PADDED
    head, std = n, 1.0
    if STORED:
        matrix += n.to(tl.int64) * matrix_n
    else:
        head = n + tl.load(key + 2).to(tl.int32)
        std = tl.load(stds + n)
        means += n * m
    groups = tl.cdiv(batch, GROUP)
    if documents is None:
        items = groups * tl.cdiv(length, 128)
    else:
        items = tl.load(documents) // GROUP
    for item in tl.range(tl.program_id(1), items * PARTS, tl.num_programs(1), num_stages=1):
        if documents is None:
            block = tl.cdiv(length, 128) - 1 - item // PARTS // groups
            row_C = item // PARTS % groups * GROUP + c // PADDED
            size_C = tl.where(row_C < batch, length, 0)
            row_C = tl.where(row_C < batch, row_C, 0)
            first_C = tl.zeros((C,), tl.int32)
        else:
            entry = documents + 4 + item // PARTS * GROUP * 4
            block = tl.load(entry)
            entry_C = entry + c // PADDED * 4
            row_C = tl.max_constancy(tl.load(entry_C + 1), PADDED)
            first_C = tl.max_constancy(tl.load(entry_C + 2), PADDED)
            size_C = tl.max_constancy(tl.load(entry_C + 3), PADDED)
        longest = tl.max(size_C)
        shortest = tl.min(tl.where(size_C > 0, size_C, longest))
        start = block * 128 + item % PARTS * R
        if start < longest:
            owned_R = start + _order(R, STORED or not TRANSPOSED)
            v_C = row_C.to(tl.int64) * v_b + first_C.to(tl.int64) * v_l + n * v_n + width_C
            # Inside from low to high, then edges from first0 to last0 and from first1 to last1.
            first1, last1 = 0, 0
            if CAUSAL:
                first0 = start
                if TRANSPOSED:
                    last0 = tl.minimum(block * 128 + 128, longest)
                    low = block * 128 + 128
                    high = tl.maximum(low, shortest // STEP * STEP)
                    first1, last1 = high, longest
                else:
                    first0 = block * 128
                    last0 = tl.minimum(start + R, longest)
                    low, high = 0, block * 128
            else:
                low, high = 0, shortest // STEP * STEP
                first0, last0 = high, longest
            if SINK:
                if head == 0:  # nothing but the diagonal and column 0
                    low, high = 0, 0
                    first1, last1 = start // STEP * STEP, tl.minimum(start + R, longest)
                    first0, last0 = 0, tl.minimum(STEP, first1)
                    if TRANSPOSED:
                        if start == 0:
                            last0, last1 = longest, first1
                        else:
                            last0 = 0
            acc = tl.zeros((R, C), tl.float64 if v.dtype.element_ty == tl.float64 else tl.float32)
            place_KC = _order(K, PLAIN)[:, None] * v_l + v_C[None, :]
            for step in tl.range(low, high, K, num_stages=STAGES):
                k = _place(step, K, PLAIN)
                a = _tile(matrix, matrix_l, key, means, std, head, m, owned_R, start, k, R, K, False, CAUSAL, IDENTITY, SINK, TRANSPOSED, STORED)
                at = v + k.to(tl.int64) * v_l + place_KC
                if WIDTH == PADDED:
                    values = tl.load(at)
                else:
                    values = tl.load(at, mask=(width_C < WIDTH)[None, :], other=0.0)
                acc = _multiply(a, values, acc)
            edges = tl.cdiv(tl.maximum(last0 - first0, 0), STEP) * (STEP // K)
            every = edges + tl.cdiv(tl.maximum(last1 - first1, 0), STEP) * (STEP // K)
            for edge in tl.range(0, every, num_stages=1):
                k = _place(tl.where(edge < edges, first0 + edge * K, first1 + (edge - edges) * K), K, PLAIN)
                a = _tile(matrix, matrix_l, key, means, std, head, m, owned_R, start, k, R, K, True, CAUSAL, IDENTITY, SINK, TRANSPOSED, STORED)
                there = (k + _order(K, PLAIN))[:, None] < size_C[None, :]
                values = tl.load(v + k.to(tl.int64) * v_l + place_KC, mask=there & (width_C < WIDTH)[None, :], other=0.0)
                acc = _multiply(a, values, acc)
            ours = (owned_R[:, None] < size_C[None, :]) & (width_C < WIDTH)[None, :]
            if IDENTITY:
                acc += tl.load(v + owned_R.to(tl.int64)[:, None] * v_l + v_C[None, :], mask=ours, other=0.0).to(acc.dtype)
            token_RC = (row_C.to(tl.int64) * length + first_C)[None, :] + owned_R[:, None]
            out_C = n * WIDTH + width_C
            tl.store(out + token_RC * (heads * WIDTH) + out_C[None, :], acc.to(out.dtype.element_ty), mask=ours)
