"""Prefix sums, the transformer without softmax of Zhong and Andreas ("Algorithmic Capabilities of
Random Transformers", arXiv 2410.04368), a baseline of tasks.

    A_ij = 1    for j <= i

    position   0  1  2        for values 6, 2, 1:
    0          1              6
    1          1  1           8
    2          1  1  1        9
"""

from dataclasses import dataclass

import torch

from mixit_titan.model.mixers.positional import Place, Positional


class PrefixSum(Positional):
    """Sums the values of each document up to the current position."""

    @dataclass(kw_only=True, slots=True)
    class Config(Positional.Config):
        pass

    def rows(self, first: int, end: int, device: torch.device) -> torch.Tensor:
        i = torch.arange(first, end, device=device).unsqueeze(1)
        return (torch.arange(end, device=device) <= i).float().unsqueeze(0)

    def forward(
        self, v_BLNH: torch.Tensor, *, positions: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Rows with one document each need no matrix: a cumulative sum does."""
        return (
            v_BLNH.cumsum(1) if positions is None else super().forward(v_BLNH, positions=positions)
        )


def inner(place: Place) -> PrefixSum.Config:
    """Return the config of a layer's inner module, the interface of every mixer's file."""
    return PrefixSum.Config(n_heads=place.shape.heads, length=place.shape.seq_len)
