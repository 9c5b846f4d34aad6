"""Positions of packed rows, with document lengths as in `data.path = "synthetic"`."""

import numpy as np
import torch

from mixit_titan.data.synthetic import MEDIAN, SIGMA


def packed_positions(batch: int, length: int) -> torch.Tensor:
    """Return (B, L), always the same: documents of lognormal lengths, the last one of a row cut
    off."""
    draw = np.random.default_rng(0)
    rows = []
    for _ in range(batch):
        sizes = np.maximum(1, draw.lognormal(np.log(min(MEDIAN, length / 4)), SIGMA, length))
        row = np.concatenate([np.arange(int(size)) for size in sizes])
        rows.append(row[:length])
    return torch.from_numpy(np.stack(rows))
