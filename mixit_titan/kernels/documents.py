"""Documents that share a row: where each begins and ends.

Positions count from 0 in each document, and a row begins with one, so that index minus position is
the index of a token's first. Shapes: B batch, L length.
"""

from collections import defaultdict

import torch


def same_document(positions_BL: torch.Tensor) -> torch.Tensor:
    """(B, L, L): whether tokens i and j of a row are of one document."""
    first_BL = starts(positions_BL)
    return first_BL.unsqueeze(2) == first_BL.unsqueeze(1)


def starts(positions_BL: torch.Tensor) -> torch.Tensor:
    """The index of the first token of each token's document."""
    index = torch.arange(positions_BL.shape[1], device=positions_BL.device)
    return index - positions_BL


def ends(positions_BL: torch.Tensor) -> torch.Tensor:
    """The index after the last token of each token's document."""
    length = positions_BL.shape[1]
    index = torch.arange(length, device=positions_BL.device)
    begins = torch.where(positions_BL == 0, index, length)
    # The nearest beginning to the right of each token: a running minimum from the right.
    after = torch.cat([begins[:, 1:], torch.full_like(begins[:, :1], length)], dim=1)
    return after.flip(1).cummin(1).values.flip(1)


def document_spans(positions_BL: torch.Tensor) -> dict[tuple[int, int], list[int]]:
    """(start, end) -> the rows that have a document there. Looks at the values: not for a graph."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    length = positions_BL.shape[1]
    for row, positions in enumerate(positions_BL.tolist()):
        begins = [i for i, position in enumerate(positions) if position == 0]
        for start, end in zip(begins, [*begins[1:], length], strict=True):
            found[start, end].append(row)
    return found
