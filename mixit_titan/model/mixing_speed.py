"""Models the time of the mixing product on a GPU from the instructions of its kernel.

A program takes a tile of A, drawn or loaded, and multiplies it by the columns of a group of
documents (kernels/triton_mixing.py). The two alternate: first the counted instructions, then the
product, by tensor cores at their peak or as fast as values come from the cache.

Shapes: a tile has BLOCK x BLOCK elements; p is its block of rows, q its block of columns.
"""

import math
from dataclasses import dataclass

from mixit_titan.kernels.forms import BLOCK, blocks
from mixit_titan.kernels.tiles import COSTS, WARPS, Source, tiles
from mixit_titan.model.hardware import Gpu
from mixit_titan.model.memory import Step
from mixit_titan.model.packing import Packing

BANDWIDTH = 0.8
"""The fraction of memory bandwidth that a purely memory-bound kernel reaches."""
_ITEMSIZE = 2
"""Costs are those of the bfloat16 kernels."""


@dataclass(frozen=True)
class Walk:
    """The tiles that all programs of one head visit."""

    groups: float
    """Tiles of documents, in all blocks."""
    inside: float
    edge: float
    """How many of them are masked."""
    different: float
    """Tiles of A, each visited by one or more groups."""


def mixing_seconds(
    source: Source, heads: float, width: int, step: Step, gpu: Gpu, packing: Packing | None
) -> float:
    """Return the seconds of one layer and one microbatch, forward and backward. Without `packing`
    each row is one document."""
    forward, backward = (
        _product(source, heads, width, step, gpu, packing, transposed)
        for transposed in (False, True)
    )
    return (2 if step.recomputation == "full" else 1) * forward + backward


def _product(
    source: Source,
    heads: float,
    width: int,
    step: Step,
    gpu: Gpu,
    packing: Packing | None,
    transposed: bool,
) -> float:
    tile = tiles(source, width, _ITEMSIZE, None if packing else step.rows)
    columns, cost = tile["GROUP"] * tile["PADDED"], COSTS[source, transposed]
    walk = visited(step.rows, step.length, tile["GROUP"], packing, transposed=transposed)
    instructions = BLOCK**2 * (walk.inside * cost.inside + walk.edge * cost.edge)
    instructions += walk.groups * cost.group * 32 * WARPS
    loaded = BLOCK * (columns + (BLOCK if source == "stored" else 0)) * _ITEMSIZE
    product = max(2 * BLOCK**2 * columns / gpu.flops, loaded / gpu.cache)
    busy = instructions / gpu.lanes + (walk.inside + walk.edge) * product
    moved = 2 * step.rows * step.length * width
    moved += walk.different * BLOCK**2 if source == "stored" else 0
    return heads * max(busy, _ITEMSIZE * moved / (BANDWIDTH * gpu.bandwidth))


def visited(
    rows: int, length: int, group: int, packing: Packing | None, *, transposed: bool
) -> Walk:
    """Count the tiles visited. Documents are sorted by length, so the groups that reach block q are
    the first ones of every block before it, where they have q + 1 tiles. Forward, the tile on the
    diagonal is masked. Transposed, the tiles that some document of a group does not fill are masked
    as well."""
    groups = inside = total = different = 0.0
    for q in range(blocks(length)):
        some = _groups(rows, length, q * BLOCK, group, packing, up=True)
        filling = (
            some
            if not transposed
            else _groups(rows, length, (q + 1) * BLOCK, group, packing, up=False)
        )
        groups += some
        inside += q * filling
        total += (q + 1) * some
        different += (q + 1) * min(1, some)
    return Walk(groups, inside, total - inside, different)


def _groups(
    rows: int, length: int, tokens: int, group: int, packing: Packing | None, *, up: bool
) -> float:
    """Return the groups of documents with at least N tokens: all groups that have one (`up`), or
    those that have no shorter one."""
    if packing is None:
        documents = rows if tokens <= length else 0
        return math.ceil(documents / group) if up else documents // group
    documents = rows * packing.documents(length, tokens) if tokens <= length else 0.0
    # On average the last group is missing half of what it can miss, if there is one.
    odd = (group - 1) / (2 * group) * -math.expm1(-2 * documents)
    return documents / group + odd if up else max(0.0, documents / group - odd)
