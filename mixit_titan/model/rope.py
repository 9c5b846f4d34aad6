"""Rotary embeddings, with less to copy.

Shapes: B batch, L length, N heads, H head width.
"""

from dataclasses import dataclass

import torch
from torchtitan.models.common import CosSinRoPE


class HalvesRoPE(CosSinRoPE):
    """The same numbers as CosSinRoPE: (a, b) -> (a cos - b sin, b cos + a sin), a and b the halves
    of a head. torchtitan turns a whole copy of the head around first, and its slices are filled up
    with zeros in the backward pass."""

    @dataclass(kw_only=True, slots=True)
    class Config(CosSinRoPE.Config):
        pass

    @staticmethod
    def apply_rotary_emb(
        query: torch.Tensor, key: torch.Tensor, rope_cache: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # The cache holds cos and sin of the angles, each of them twice.
        cos, _, sin, _ = rope_cache.chunk(4, dim=-1)
        return _turn(query, cos, sin), _turn(key, cos, sin)


def _turn(x_BLNH: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x_BLNH.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).type_as(x_BLNH)
