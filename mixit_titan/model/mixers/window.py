"""Sliding-window attention: a token sees the last `model.window` of its document, itself included.

    out_i = sum over i - w < j <= i of softmax(q_i k_j / sqrt(h)) v_j

    w = 2     sees 0  1  2  3
    token 0        x
    token 1        x  x
    token 2           x  x
    token 3              x  x

It uses torch's SDPA with a mask, on a GPU too, so masked scores are computed as well.
"""

from dataclasses import dataclass

import torch

from mixit_titan.model.mixers.attention import DocumentAttention
from mixit_titan.model.mixers.positional import Place


class WindowAttention(DocumentAttention):
    """Attention that is causal, within documents, and limited to the last `window` tokens."""

    @dataclass(kw_only=True, slots=True)
    class Config(DocumentAttention.Config):
        window: int

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.window = config.window

    def seen(self, q_BLNH: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        near_LL = in_window(q_BLNH.shape[1], self.window, q_BLNH.device)
        return near_LL if mask is None else mask & near_LL


def in_window(length: int, window: int, device: torch.device) -> torch.Tensor:
    """Return (L, L): whether token i sees token j."""
    index = torch.arange(length, device=device)
    apart = index.unsqueeze(1) - index
    return (apart >= 0) & (apart < window)


def inner(place: Place) -> WindowAttention.Config:
    """Return the config of a layer's inner module, the interface of every mixer's file."""
    return WindowAttention.Config(window=place.shape.window)
