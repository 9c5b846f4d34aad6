"""Each token takes the mean of its document up to itself.

A_ij = 1 / (i + 1)    for j <= i

position   0    1    2        of values 6, 2, 1:
0          1                  6
1          1/2  1/2           4
2          1/3  1/3  1/3      3
"""

from dataclasses import dataclass

import torch

from mixit_titan.model.mixers.positional import Place, Positional


class Uniform(Positional):
    @dataclass(kw_only=True, slots=True)
    class Config(Positional.Config):
        pass

    def rows(self, first: int, end: int, device: torch.device) -> torch.Tensor:
        i = torch.arange(first, end, device=device).unsqueeze(1)
        j = torch.arange(end, device=device)
        return ((j <= i) / (i + 1)).unsqueeze(0)


def inner(place: Place) -> Uniform.Config:
    return Uniform.Config(n_heads=place.shape.heads, length=place.shape.seq_len)
