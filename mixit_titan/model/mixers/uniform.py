"""Each position outputs the mean of the values of its document up to itself.

A_ij = 1 / (i + 1)    for j <= i

position   0    1    2        for values 6, 2, 1:
0          1                  6
1          1/2  1/2           4
2          1/3  1/3  1/3      3
"""

from dataclasses import dataclass

import torch

from mixit_titan.model.mixers.positional import Place, Positional


class Uniform(Positional):
    """Averages the values of each document up to the current position."""

    @dataclass(kw_only=True, slots=True)
    class Config(Positional.Config):
        pass

    def rows(self, first: int, end: int, device: torch.device) -> torch.Tensor:
        i = torch.arange(first, end, device=device).unsqueeze(1)
        j = torch.arange(end, device=device)
        return ((j <= i) / (i + 1)).unsqueeze(0)


def inner(place: Place) -> Uniform.Config:
    """Return the config of a layer's inner module, the interface of every mixer's file."""
    return Uniform.Config(n_heads=place.shape.heads, length=place.shape.seq_len)
