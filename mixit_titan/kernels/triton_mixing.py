"""The product on a GPU, in position space.

A document of n tokens is mixed by the corner A[:n, :n], whichever row of the batch it is in. So a
tile of A is taken once, from memory (stored) or drawn (generated), and multiplied by the blocks of
several documents side by side. v is read and out is written where they are.

A program handles one head and 128 positions, `owned`, of up to GROUP documents that reach them
(documents.py puts them in a table). It walks over the other positions: the columns of A that its
rows see, or for the transposed product the rows that see its columns. Inside, where neither the
diagonal nor the end of a document can be, nothing is masked; the edges come last.

Shapes: B batch, L length, N heads, H head width, C columns (documents times padded width), R owned
positions, K others at a time, M the longest length.
"""

import triton
import triton.language as tl

from mixit_titan.kernels.triton_noise import INTERPRETED, at_the_edge, draw, order, position
from mixit_titan.kernels.triton_walk import R, group_of_documents, walk


@triton.jit
def _drawn(
    source,
    rows,
    first,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    EDGE: tl.constexpr,
    SIGNS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):
    """Return A[rows, columns], with the columns as `draw` gives them from `first`."""
    key, means, std, head, m = source
    # As many columns as `draw` has words, because the compiler leaves these in the layout of a
    # load.
    zero = tl.zeros((ROWS, COLUMNS // 32 if SIGNS else 1), tl.int32)
    inside = tl.minimum(rows, m - 1)  # rows below that belong to no document
    less = std * tl.load(means + inside[:, None] + zero)
    return draw(key, head, rows, first, std, less, ROWS, COLUMNS, EDGE, SIGNS, not TRANSPOSED)


@triton.jit
def _loaded(source, rows, columns, row, column, EDGE: tl.constexpr, KIND: tl.constexpr):
    """Return A[rows, columns], beginning with `row` and `column`. A packed matrix has the tiles of
    its lower triangle one after another (stored.py)."""
    matrix, matrix_l, head, m = source
    CAUSAL, _, PACKED, TRANSPOSED = KIND
    if PACKED:
        block = row // R
        tile = block.to(tl.int64) * (block + 1) // 2 + column // R
        at = matrix + tile * (R * R) + (rows - block * R)[:, None] * R
        a = tl.load(at + (columns - column // R * R)[None, :])
    else:
        at = matrix + tl.minimum(rows, m - 1).to(tl.int64)[:, None] * matrix_l + columns[None, :]
        if EDGE is None and (CAUSAL or not TRANSPOSED):
            a = tl.load(at)
        else:
            a = tl.load(at, mask=(columns < m)[None, :], other=0.0)
        if EDGE is not None:
            a = at_the_edge(a, rows[:, None], columns[None, :], head, EDGE)
    return a


@triton.jit
def _tile(source, start, k, K: tl.constexpr, EDGE: tl.constexpr, KIND: tl.constexpr):
    """Return A[owned, others], or A[others, owned] transposed, less the identity if that is kept
    apart: (R, K). EDGE: what `at_the_edge` takes, or None inside."""
    matrix, matrix_l, key, means, std, head, m = source
    _, SIGNS, _, TRANSPOSED = KIND
    NORMALS: tl.constexpr = matrix is None and not SIGNS
    owned_R = start + order(R, NORMALS and TRANSPOSED)
    other_K = k + order(K, NORMALS and not TRANSPOSED)
    drawn = (key, means, std, head, m)
    loaded = (matrix, matrix_l, head, m)
    if TRANSPOSED:
        if matrix is None:
            a = _drawn(drawn, other_K, start, K, R, EDGE, SIGNS, TRANSPOSED)
        else:
            a = _loaded(loaded, other_K, owned_R, k, start, EDGE, KIND)
        a = tl.trans(a)
    elif matrix is None:
        a = _drawn(drawn, owned_R, k, R, K, EDGE, SIGNS, TRANSPOSED)
    else:
        a = _loaded(loaded, owned_R, other_K, start, k, EDGE, KIND)
    return a


@triton.jit
def _multiply(a, values, acc):
    """Return acc + a values, in the precision of the values: no TF32."""
    if INTERPRETED:
        return tl.dot(
            a.to(values.dtype).to(acc.dtype), values.to(acc.dtype), acc, out_dtype=acc.dtype
        )
    return tl.dot(a.to(values.dtype), values, acc, input_precision="ieee", out_dtype=acc.dtype)


@triton.jit
def _add_tile(
    acc,
    source,
    values,
    start,
    step,
    size_C,
    width_C,
    K: tl.constexpr,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    EDGE: tl.constexpr,
    KIND: tl.constexpr,
):
    """Return acc + a tile of A times the values of `step`. `values`: v, its stride, and where those
    of step 0 are in it. EDGE: as in `_tile`; inside, all documents have them."""
    _, SIGNS, _, TRANSPOSED = KIND
    AHEAD: tl.constexpr = source[0] is None and not SIGNS and not TRANSPOSED
    k = position(step, AHEAD)
    a = _tile(source, start, k, K, EDGE, KIND)
    v, v_l, others_KC = values
    at = v + k.to(tl.int64) * v_l + others_KC
    if EDGE is not None:
        there = (k + order(K, AHEAD))[:, None] < size_C[None, :]
        b = tl.load(at, mask=there & (width_C < WIDTH)[None, :], other=0.0)
    elif WIDTH == PADDED:
        b = tl.load(at)
    else:
        b = tl.load(at, mask=(width_C < WIDTH)[None, :], other=0.0)
    return _multiply(a, b, acc)


@triton.jit
def _add_tiles(
    acc,
    source,
    values,
    block,
    size_C,
    width_C,
    K: tl.constexpr,
    STAGES: tl.constexpr,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    EDGE: tl.constexpr,
    KIND: tl.constexpr,
):
    """Return acc + A times the values, for all others that the positions of `block` see."""
    CAUSAL, SIGNS, _, TRANSPOSED = KIND
    # Drawn normals come in groups of 128 columns.
    STEP: tl.constexpr = 128 if source[0] is None and not SIGNS and not TRANSPOSED else K
    head = source[5]
    start = block * R
    longest = tl.max(size_C)
    shortest = tl.min(tl.where(size_C > 0, size_C, longest))
    low, high, first0, last0, first1, last1 = walk(
        block, shortest, longest, head, STEP, CAUSAL, EDGE[2], TRANSPOSED
    )
    for step in tl.range(low, high, K, num_stages=STAGES):
        acc = _add_tile(
            acc, source, values, start, step, size_C, width_C, K, WIDTH, PADDED, None, KIND
        )
    edges0 = tl.cdiv(tl.maximum(last0 - first0, 0), STEP) * (STEP // K)
    edges1 = tl.cdiv(tl.maximum(last1 - first1, 0), STEP) * (STEP // K)
    for edge in tl.range(0, edges0 + edges1, num_stages=1, disable_licm=True):
        step = tl.where(edge < edges0, first0 + edge * K, first1 + (edge - edges0) * K)
        acc = _add_tile(
            acc, source, values, start, step, size_C, width_C, K, WIDTH, PADDED, EDGE, KIND
        )
    return acc


@triton.jit
def mix(
    v,
    out,
    table,
    matrix,
    key,
    means,
    stds,
    batch,
    length,
    m,
    v_b,
    v_l,
    v_n,
    matrix_n,
    matrix_l,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    GROUP: tl.constexpr,
    K: tl.constexpr,
    STAGES: tl.constexpr,
    CAUSAL: tl.constexpr,
    IDENTITY: tl.constexpr,
    SINK: tl.constexpr,
    SIGNS: tl.constexpr,
    PACKED: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):
    """Write out = A v or A^T v. `matrix` (N, M, M), or `key`, `means` and `stds`, define A; `table`
    the documents (None: one per row). IDENTITY: A is kept without it, and v is added."""
    n = tl.program_id(1)
    NORMALS: tl.constexpr = matrix is None and not SIGNS
    AHEAD: tl.constexpr = NORMALS and not TRANSPOSED
    KIND: tl.constexpr = (CAUSAL, SIGNS, PACKED, TRANSPOSED)
    EDGE: tl.constexpr = (CAUSAL, IDENTITY, SINK)
    head, std = n, 1.0
    if matrix is None:
        head = n + tl.load(key + 2).to(tl.int32)
        std = tl.load(stds + n)
        means += n.to(tl.int64) * m
    else:
        matrix += n.to(tl.int64) * matrix_n
    source = (matrix, matrix_l, key, means, std, head, m)
    if table is None:
        groups = tl.cdiv(batch, GROUP) * tl.cdiv(length, R)
    else:
        groups = tl.load(table) // GROUP
    width_C = tl.arange(0, GROUP * PADDED) % PADDED
    # Registers are scarce: what one group needs is not kept for the next.
    for turn in tl.range(
        tl.program_id(0), groups, tl.num_programs(0), num_stages=1, disable_licm=True
    ):
        # The most work first: late blocks see most, and early ones are seen by most.
        group = groups - 1 - turn if TRANSPOSED else turn
        block, row_C, first_C, size_C = group_of_documents(
            table, group, batch, length, PADDED, GROUP
        )
        start = block * R
        if start < tl.max(size_C):
            v_C = row_C.to(tl.int64) * v_b + first_C.to(tl.int64) * v_l + width_C
            v_C += n.to(tl.int64) * v_n
            values = (v, v_l, order(K, AHEAD)[:, None] * v_l + v_C[None, :])
            owned_R = start + order(R, NORMALS and TRANSPOSED)
            acc = tl.zeros(
                (R, GROUP * PADDED),
                tl.float64 if v.dtype.element_ty == tl.float64 else tl.float32,
            )
            if IDENTITY:
                owned_RC = owned_R.to(tl.int64)[:, None] * v_l + v_C[None, :]
                ours = (owned_R[:, None] < size_C[None, :]) & (width_C < WIDTH)[None, :]
                acc += tl.load(v + owned_RC, mask=ours, other=0.0).to(acc.dtype)
            acc = _add_tiles(
                acc, source, values, block, size_C, width_C, K, STAGES, WIDTH, PADDED, EDGE, KIND
            )
            # Looked up again rather than kept: see above.
            block, row_C, first_C, size_C = group_of_documents(
                table, group, batch, length, PADDED, GROUP
            )
            ours = (owned_R[:, None] < size_C[None, :]) & (width_C < WIDTH)[None, :]
            token_RC = (row_C.to(tl.int64) * length + first_C)[None, :] + owned_R[:, None]
            at = out + (token_RC * tl.num_programs(1) + n) * WIDTH + width_C[None, :]
            tl.store(at, acc.to(out.dtype.element_ty), mask=ours)
