"""Mixers by a matrix over positions, which no token changes: out = wo(A (wv x)).

    out_i = sum over the visible j of A[position of i, position of j] v_j

A is a lower triangle, and the visible j are those of the document up to i, so that each document is
mixed as it would be alone. The product is torch's, with zeros where A is zero: there is no fast
path as the mixing matrices of MixiT have (kernels/). A mixer is a subclass of `Positional` with the
rows of its A.

Shapes: B batch, L length, D width, N heads, H head width; N is 1 where all heads have the same A.
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
    """What a mixer's file is told of the layer that it makes the inner module of."""

    shape: Shape
    layer: int
    seed: int
    """Of [model.mixing]."""
    spec: MatrixSpec | None
    """The matrix that [model.mixing] describes, for mixers that are drawn by it."""
    form: Form
    dtype: str
    """How mixing matrices are kept."""
    attention: AttentionBackend
    on_gpu: bool
    """Where the model will run."""


def document_mask(positions_BL: torch.Tensor) -> torch.Tensor:
    """(B, 1, L, L): what each token sees, namely its own document up to itself. Made once for all
    layers."""
    return same_document(positions_BL).tril().unsqueeze(1)


class Positional(Module):
    """The matrix of one layer."""

    @dataclass(kw_only=True, slots=True)
    class Config(Module.Config):
        n_heads: int
        length: int
        """Of the longest sequence."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.length = config.length
        _log(type(self).__name__)

    def rows(self, first: int, end: int, device: torch.device) -> torch.Tensor:
        """(N, end - first, end): rows of A, float32."""
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
        """The last `count` rows of A v, (B, count, N H): what a full product ends with."""
        end = v_BLNH.shape[1]
        a_NTL = self.rows(end - count, end, v_BLNH.device).to(v_BLNH.dtype)
        return (a_NTL @ v_BLNH.transpose(1, 2)).transpose(1, 2).flatten(2)


def local(weight: torch.Tensor) -> torch.Tensor:
    return weight.to_local() if isinstance(weight, DTensor) else weight


@functools.cache
def _log(name: str) -> None:
    logger.info(f"{name} mixes by a plain product: it is for comparison, not for speed")
