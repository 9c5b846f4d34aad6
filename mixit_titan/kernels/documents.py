"""Documents that share a row: where each begins and ends.

Positions count from 0 in each document, and a row begins with a document, so index minus position
is the index of the document's first token. Shapes: B batch, L length, P blocks of positions, S
slots of a table.
"""

from collections import defaultdict

import torch

from mixit_titan.kernels.forms import BLOCK, blocks
from mixit_titan.kernels.tiles import LARGEST_GROUP


def same_document(positions_BL: torch.Tensor) -> torch.Tensor:
    """Return (B, L, L): whether tokens i and j of a row belong to one document."""
    first_BL = starts(positions_BL)
    return first_BL.unsqueeze(2) == first_BL.unsqueeze(1)


def starts(positions_BL: torch.Tensor) -> torch.Tensor:
    """Return the index of the first token of each token's document."""
    index = torch.arange(positions_BL.shape[1], device=positions_BL.device)
    return index - positions_BL


def ends(positions_BL: torch.Tensor) -> torch.Tensor:
    """Return the index after the last token of each token's document."""
    length = positions_BL.shape[1]
    index = torch.arange(length, device=positions_BL.device)
    begins = torch.where(positions_BL == 0, index, length)
    # The nearest beginning to the right of each token, as a running minimum from the right.
    after = torch.cat([begins[:, 1:], torch.full_like(begins[:, :1], length)], dim=1)
    return after.flip(1).cummin(1).values.flip(1)


def slots(batch: int, length: int) -> int:
    """Return the number of entries that a table needs in the worst case, of documents with one
    token."""
    return batch * length + LARGEST_GROUP * blocks(length)


def document_table(positions_BL: torch.Tensor) -> torch.Tensor:
    """Return the documents of a batch, for the mixing products: (1 + S, 4) in int32.

    An entry (block, row, first token, size) says that a document reaches positions 128 block ... of
    its row. Entries of late blocks come first, and within a block those of long documents. A block
    has a multiple of 8 entries, padded with zeros. Row 0 of the table holds their number.

    Its size depends only on the shape of the positions, and nothing syncs with the host, so it can
    be made in a CUDA graph. Once per step is enough for all layers.
    """
    batch, length = positions_BL.shape
    device = positions_BL.device
    first_BL = starts(positions_BL)
    size_BL = ends(positions_BL) - first_BL
    block_BL = positions_BL // BLOCK
    opens_BL = positions_BL % BLOCK == 0  # opens a block of its document
    key = torch.where(opens_BL, -(block_BL * (length + 1) + size_BL), 1)
    key, order = key.flatten().sort(stable=True)

    count = blocks(length)
    block_P = torch.arange(count - 1, -1, -1, device=device)
    before_P = torch.searchsorted(key, -(block_P + 1) * (length + 1))
    total = opens_BL.sum()
    entries_P = torch.cat([before_P[1:], total.unsqueeze(0)]) - before_P
    room_P = (entries_P + LARGEST_GROUP - 1) // LARGEST_GROUP * LARGEST_GROUP
    shift_P = room_P.cumsum(0) - room_P - before_P

    row_BL = torch.arange(batch, device=device).unsqueeze(1).expand(-1, length)
    entry = torch.stack([block_BL, row_BL, first_BL, size_BL], dim=-1).view(-1, 4)[order]
    index = torch.arange(batch * length, device=device)
    slot = torch.where(
        index < total, index + shift_P[count - 1 - entry[:, 0]], slots(batch, length)
    )
    table = torch.zeros(2 + slots(batch, length), 4, dtype=torch.int32, device=device)
    table[1 + slot] = entry.to(torch.int32)  # the last row takes what is not an entry
    table[0, 0] = room_P.sum()
    return table[:-1]


def document_spans(documents: torch.Tensor) -> dict[tuple[int, int], list[int]]:
    """Return (start, end) -> the rows with a document there. It reads values, so it cannot be in a
    graph."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for block, row, first, size in documents[1 : 1 + int(documents[0, 0])].tolist():
        if block == 0 and size:
            found[first, first + size].append(row)
    return found
