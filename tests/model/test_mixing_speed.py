"""The modeled time of the mixing kernel, against tiles that are counted in a table of documents
and against arithmetic by hand."""

import itertools

import numpy as np
import pytest
import torch

from mixit_titan.kernels.documents import document_table
from mixit_titan.model.hardware import GPUS
from mixit_titan.model.memory import Step
from mixit_titan.model.mixing_speed import Walk, mixing_seconds, visited
from mixit_titan.model.packing import Packing

H100 = GPUS["H100"]
LANES = 132 * 128 * 1.755e9


def packed_positions(rows: int, length: int, seed: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    sizes = np.maximum(2, rng.lognormal(np.log(600), 1.0, 100 + rows * length // 200).astype(int))
    document = np.repeat(np.arange(len(sizes)), sizes)[3000 : 3000 + rows * length]
    document = torch.from_numpy(document.reshape(rows, length))
    index = torch.arange(length).expand(rows, -1)
    begins = torch.ones_like(document, dtype=torch.bool)
    begins[:, 1:] = document[:, 1:] != document[:, :-1]
    return index - torch.where(begins, index, 0).cummax(1).values


def counted(positions: torch.Tensor, group: int, *, transposed: bool) -> tuple[int, int, int]:
    """Groups, tiles and those inside, one by one, as programs take them from the table."""
    table = document_table(positions)
    groups = inside = total = 0
    for entries in table[1 : 1 + int(table[0, 0])].view(-1, group, 4).tolist():
        block, sizes = entries[0][0], [size for *_, size in entries if size]
        if not sizes:
            continue
        groups += 1
        last = -(-max(sizes) // 128)  # blocks that the longest of them has
        tiles = range(block, last) if transposed else range(block + 1)
        total += len(tiles)
        inside += sum(q != block and (not transposed or min(sizes) >= 128 * (q + 1)) for q in tiles)
    return groups, total, inside


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("rows", "length", "group"), [(32, 2048, 4), (8, 8192, 4), (4, 2048, 2)])
def test_tiles_are_those_of_packed_documents(
    rows: int, length: int, group: int, transposed: bool
) -> None:
    tables = [
        counted(packed_positions(rows, length, seed), group, transposed=transposed)
        for seed in range(12)
    ]
    groups, total, inside = np.mean(tables, axis=0)
    found = visited(rows, length, group, Packing(600, 1.0), transposed=transposed)
    assert found.groups == pytest.approx(groups, rel=0.1)
    assert found.inside + found.edge == pytest.approx(total, rel=0.2)
    # Transposed, a group that lacks documents has none that ends early: fewer are masked.
    assert found.inside == pytest.approx(inside, rel=0.4 if transposed else 0.2)


@pytest.mark.parametrize("transposed", [False, True])
def test_tiles_of_whole_rows_are_exact(transposed: bool) -> None:
    for rows, length, group in itertools.product((1, 3, 8), (128, 512), (2, 4)):
        positions = torch.arange(length).expand(rows, -1)
        groups, total, inside = counted(positions, group, transposed=transposed)
        found = visited(rows, length, group, None, transposed=transposed)
        if transposed and rows % group:  # a group that lacks documents counts as masked
            inside = found.inside
        triangle = (length // 128) * (length // 128 + 1) / 2
        assert found == Walk(groups, inside, total - inside, triangle)


def test_drawing_by_hand() -> None:
    """8b at 8192, one row: 64 blocks of 128, one group each, 128 columns."""
    step = Step(rows=1, length=8192)
    found = mixing_seconds("normals", 32, 128, step, H100, None)
    inside, edge, tile = 64 * 63 / 2, 64, 128 * 128
    product = (inside + edge) * 2 * tile * 128 / 989e12
    cache = (inside + edge) * 128 * 128 * 2 / (132 * 24 * 1.755e9)
    forward = tile * (inside * 26.44 + edge * 30.38) + 64 * 256 * 1223
    backward = tile * (inside * 28.88 + edge * 32.69) + 64 * 256 * 1288
    expected = 32 * ((forward + backward) / LANES + 2 * max(product, cache))
    assert found == pytest.approx(expected, rel=0.01)


def test_a_stored_matrix_is_read_from_memory() -> None:
    """One row of width 16 does so little that the matrices of all heads are what takes time."""
    step = Step(rows=1, length=8192)
    found = mixing_seconds("stored", 8, 16, step, H100, None)
    matrix, values = 64 * 65 / 2 * 128**2, 2 * 8192 * 16
    assert found >= 2 * 8 * 2 * (matrix + values) / (0.8 * 3.35e12) * 0.999
    drawn = mixing_seconds("normals", 8, 16, step, H100, None)
    assert drawn > found


def test_cheaper_sources_and_documents_take_less_time() -> None:
    step, packing = Step(rows=32, length=2048), Packing(600, 1.0)
    normals, signs = (
        mixing_seconds(source, 12, 64, step, H100, packing) for source in ("normals", "signs")
    )
    assert signs < normals < mixing_seconds("normals", 12, 64, step, H100, None)
    again = Step(rows=32, length=2048, recomputation="full")
    assert mixing_seconds("normals", 12, 64, again, H100, packing) > 1.3 * normals
