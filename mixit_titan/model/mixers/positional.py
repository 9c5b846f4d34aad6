"""Mixers by a matrix over positions that does not depend on the tokens: out = wo(A (wv x)).

out_i = sum over the visible j of A[position of i, position of j] v_j

A is lower triangular, and the visible j are those of the same document up to i, so each document is
mixed as it would be on its own. The product is torch's, zeros included: unlike MixiT's mixing
matrices (kernels/) it has no fast path. A mixer is a subclass of `Positional` that defines the rows
of its A.

Shapes: B batch, L length, D width, N heads, H head width; N is 1 where all heads share one A.
"""

import functools
from dataclasses import dataclass
from typing import Literal

import torch
from torch.distributed.tensor import DTensor
from torchtitan.protocols.module import Module

from mixit_titan.kernels.documents import same_document
from mixit_titan.kernels.forms import Form
from mixit_titan.kernels.mixing import MatrixSpec
from mixit_titan.log import logger
from mixit_titan.model.shapes import Shape

AttentionBackend = Literal["auto", "flex", "varlen", "sdpa"]


@dataclass(frozen=True, kw_only=True)
class Place:
    """What a mixer's file is told about the layer whose inner module it configures."""

    shape: Shape
    layer: int
    seed: int
    """The seed of [model.mixing]."""
    spec: MatrixSpec | None
    """The matrix that [model.mixing] describes, for mixers drawn from it."""
    form: Form
    dtype: str
    """The form in which mixing matrices are kept."""
    attention: AttentionBackend
    on_gpu: bool
    """Whether the model will run on a GPU."""


def document_mask(positions_BL: torch.Tensor) -> torch.Tensor:
    """Return (B, 1, L, L): what each token sees, namely its own document up to itself. Made once
    for all layers."""
    return same_document(positions_BL).tril().unsqueeze(1)


class Positional(Module):
    """Base class of the mixers by position: the matrix of one layer, and its product with the
    values."""

    @dataclass(kw_only=True, slots=True)
    class Config(Module.Config):
        n_heads: int
        length: int
        """Rows of the matrix, for the longest sequence."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.length = config.length
        _log(type(self).__name__)

    def rows(self, first: int, end: int, device: torch.device) -> torch.Tensor:
        """Return rows `first` to `end` of A as float32, of shape (N, end - first, end)."""
        raise NotImplementedError

    def forward(
        self, v_BLNH: torch.Tensor, *, positions: torch.Tensor | None = None
    ) -> torch.Tensor:
        length = v_BLNH.shape[1]
        a_NLL = self.rows(0, length, v_BLNH.device).to(v_BLNH.dtype)
        if positions is not None:
            a_NBLL = a_NLL[:, positions.unsqueeze(2), positions.unsqueeze(1)]
            a_NLL = (a_NBLL * document_mask(positions)[:, 0]).transpose(0, 1)
        return (a_NLL @ v_BLNH.transpose(1, 2)).transpose(1, 2)

    def last(self, v_BLNH: torch.Tensor, count: int) -> torch.Tensor:
        """Return the last `count` rows of A v, (B, count, N H), equal to those of the complete
        product."""
        end = v_BLNH.shape[1]
        a_NTL = self.rows(end - count, end, v_BLNH.device).to(v_BLNH.dtype)
        return (a_NTL @ v_BLNH.transpose(1, 2)).transpose(1, 2).flatten(2)


def local(weight: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a weight."""
    return weight.to_local() if isinstance(weight, DTensor) else weight


@functools.cache
def _log(name: str) -> None:
    logger.info(f"{name} mixes by a plain matrix product, which serves comparison and not speed")
