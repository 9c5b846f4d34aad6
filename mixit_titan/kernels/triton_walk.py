"""Which documents a program of triton_mixing.py handles, and which of their positions it visits.

Shapes: C columns (documents times padded width), R owned positions.
"""

import triton
import triton.language as tl

from mixit_titan.kernels.forms import BLOCK

R = tl.constexpr(BLOCK)


@triton.jit
def group_of_documents(table, group, batch, length, PADDED: tl.constexpr, GROUP: tl.constexpr):
    """Return the block of a group, and for each column its document's row, first token and size."""
    member_C = tl.arange(0, GROUP * PADDED) // PADDED
    if table is None:
        groups = tl.cdiv(batch, GROUP)
        block = tl.cdiv(length, R) - 1 - group // groups
        row_C = group % groups * GROUP + member_C
        size_C = tl.where(row_C < batch, length, 0)
        row_C = tl.where(row_C < batch, row_C, 0)
        first_C = tl.zeros_like(row_C)
    else:
        entry = table + 4 + group * GROUP * 4
        block = tl.load(entry)
        row_C = tl.max_constancy(tl.load(entry + member_C * 4 + 1), PADDED)
        first_C = tl.max_constancy(tl.load(entry + member_C * 4 + 2), PADDED)
        size_C = tl.max_constancy(tl.load(entry + member_C * 4 + 3), PADDED)
    return block, row_C, first_C, size_C


@triton.jit
def walk(
    block,
    shortest,
    longest,
    head,
    STEP: tl.constexpr,
    CAUSAL: tl.constexpr,
    SINK: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):
    """Return which other positions a program visits: those inside, and two stretches of edges."""
    start = block * R
    end = tl.minimum(start + R, longest)
    low, high = 0, start
    first0, last0 = start, end
    first1, last1 = 0, 0
    if not CAUSAL:
        high = shortest // STEP * STEP
        first0, last0 = high, longest
    elif TRANSPOSED:
        low = start + R
        high = tl.maximum(low, shortest // STEP * STEP)
        first1, last1 = high, longest
    if SINK:
        if head == 0:  # only the diagonal and column 0
            low, high = 0, 0
            first0, last0 = start, end
            if TRANSPOSED:
                first1, last1 = end, tl.where(start == 0, longest, end)
            else:
                first1, last1 = 0, tl.minimum(STEP, start)
    return low, high, first0, last0, first1, last1
