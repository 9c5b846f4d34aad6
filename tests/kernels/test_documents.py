"""Where documents begin and end, and the table that the products use."""

import pytest
import torch

from mixit_titan.kernels.documents import (
    BLOCK,
    document_spans,
    document_table,
    ends,
    same_document,
    starts,
)
from mixit_titan.kernels.tiles import LARGEST_GROUP


def packed(*rows: tuple[int, ...]) -> torch.Tensor:
    """Positions of rows of documents of these lengths."""
    return torch.tensor([[i for length in row for i in range(length)] for row in rows])


def test_where_documents_begin_and_end() -> None:
    positions = torch.tensor([[0, 1, 0, 0, 1, 2], [0, 1, 2, 3, 4, 5]])
    assert starts(positions).tolist() == [[0, 0, 2, 3, 3, 3], [0] * 6]
    assert ends(positions).tolist() == [[2, 2, 3, 6, 6, 6], [6] * 6]
    spans = {(0, 2): [0], (2, 3): [0], (3, 6): [0], (0, 6): [1]}
    assert document_spans(document_table(positions)) == spans
    assert same_document(positions)[0].int().tolist()[2] == [0, 0, 1, 0, 0, 0]


def by_loops(rows: tuple[tuple[int, ...], ...]) -> list[tuple[int, ...]]:
    """(block, row, first, size) of all blocks of all documents: late blocks and long documents
    first, those alike by their place."""
    found = []
    for row, sizes in enumerate(rows):
        first = 0
        for size in sizes:
            found += [(block, row, first, size) for block in range(-(-size // BLOCK))]
            first += size
    return sorted(found, key=lambda e: (-e[0], -e[3], e[1], e[2] + e[0] * BLOCK))


@pytest.mark.parametrize(
    "rows",
    [
        ((1,),),
        ((128,),),
        ((129,), (129,)),
        ((300, 1, 83), (384,), (128, 256), (1,) * 384),
        ((1,) * 200, (1,) * 200),
        tuple(tuple([5] * 60) for _ in range(64)),
    ],
    ids=lambda rows: f"{len(rows)} rows of {sum(rows[0])}",
)
def test_the_table_has_every_block_of_every_document_once(rows: tuple) -> None:
    table = document_table(packed(*rows))
    used, *rest = table[0].tolist()
    assert rest == [0, 0, 0] and used % LARGEST_GROUP == 0
    assert not table[1 + used :].any()
    entries = [tuple(entry) for entry in table[1 : 1 + used].tolist()]
    assert [entry for entry in entries if entry[3]] == by_loops(rows)
    assert all(entry == (0, 0, 0, 0) for entry in entries if not entry[3])
    for first in range(0, used, LARGEST_GROUP):  # what a program takes is of one block
        group = [entry for entry in entries[first : first + LARGEST_GROUP] if entry[3]]
        assert len({entry[0] for entry in group}) == 1 and entries[first][3]


def test_the_size_of_a_table_depends_on_nothing_but_the_shape() -> None:
    shapes = {document_table(packed(*rows)).shape for rows in (((40,),), ((1,) * 40,), ((39, 1),))}
    assert len(shapes) == 1


def test_a_table_can_be_made_without_values() -> None:
    """As it must be to be captured in a CUDA graph: on `meta` no host can ask for any."""
    table = document_table(torch.empty(3, 500, dtype=torch.int64, device="meta"))
    assert table.shape == document_table(packed((500,), (500,), (500,))).shape
