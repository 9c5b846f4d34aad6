"""The mixing attention of MixiT, and the position embedding that it needs.

Shapes: B batch, L length, D width, N heads, H head width.
"""

import functools
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torchtitan.config import TORCH_DTYPE_MAP
from torchtitan.distributed import ParallelDims
from torchtitan.models.common import Embedding, Linear
from torchtitan.models.common.attention import AttentionMasksType, BaseAttention
from torchtitan.protocols.module import Module

from mixit_titan.device import has_gpu
from mixit_titan.kernels.forms import Form
from mixit_titan.kernels.matrices import MixingMatrices
from mixit_titan.kernels.mixing import MatrixSpec, draw_rows
from mixit_titan.kernels.stored import identity_apart
from mixit_titan.log import logger

_ROWS = 64  # drawn at a time for a shard


class PositionedEmbedding(Embedding):
    """Token embedding plus one learned vector per position.

    The positions live in this module, not beside it, so that torchtitan's pipeline splitting and
    FSDP wrapping, which go by module names, carry them along.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(Embedding.Config):
        seq_len: int

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.seq_len = config.seq_len
        self.position_weight = nn.Parameter(torch.empty(config.seq_len, config.embedding_dim))

    def forward(
        self, input: torch.Tensor, *, positions: torch.Tensor | None = None
    ) -> torch.Tensor:
        if positions is None:
            positions = torch.arange(input.shape[1], device=input.device)
        weight = self.position_weight
        weight = weight.to_local() if isinstance(weight, DTensor) else weight
        if self.tp_group is None:
            return super().forward(input) + F.embedding(positions, weight)
        # As the tokens: a rank has some rows, and the sum over the ranks is the embedding.
        chunk = -(-self.seq_len // dist.get_world_size(self.tp_group))
        place = positions - chunk * dist.get_rank(self.tp_group)
        ours = (place >= 0) & (place < len(weight))
        looked_up = F.embedding(place.clamp(0, len(weight) - 1), weight)
        return super().forward(input) + looked_up * ours.unsqueeze(-1)


class InnerMixing(MixingMatrices, Module):
    """The matrices of one layer, made and placed as torchtitan does: on the meta device, split over
    ranks, then drawn."""

    @dataclass(kw_only=True, slots=True)
    class Config(Module.Config):
        spec: MatrixSpec
        layer: int
        n_heads: int
        form: Form
        dtype: str = "float32"
        """What A is kept in: the dtype of the values that it multiplies."""

    def __init__(self, config: Config) -> None:
        heads, dtype = range(config.n_heads), TORCH_DTYPE_MAP[config.dtype]
        super().__init__(config.spec, config.layer, heads, config.form, dtype)

    def _distribute_states(self, parallel_dims: ParallelDims) -> None:
        """Tensor parallelism: a rank draws the matrices of its own heads."""
        mesh = parallel_dims.get_optional_mesh("tp")
        if mesh is not None:
            share = len(self.heads) // mesh.size()
            with torch.device("meta"):
                self.take_heads(self.heads[share * mesh.get_local_rank() :][:share])

    def _init_self_buffers(self, *, buffer_device: torch.device | None = None) -> None:
        _log_form(self.form)
        if self.form != "sharded":
            self.draw(buffer_device or next(self.buffers()).device)

    def _init_self_parameters(self) -> None:
        if self.form == "sharded":
            self._draw_shard()

    @torch.no_grad()
    def _draw_shard(self) -> None:
        """Fill the rows of the matrices that are on this rank."""
        spec, m = self.spec, self.spec.length
        local, first = self.matrix, 0
        if isinstance(self.matrix, DTensor):
            local = self.matrix.to_local()
            _, (first, _) = compute_local_shape_and_global_offset(
                self.matrix.shape, self.matrix.device_mesh, self.matrix.placements
            )
        apart = identity_apart(spec, self.dtype)
        for n, head in enumerate(self.heads):
            top, bottom = max(first, n * m), min(first + len(local), (n + 1) * m)
            for row in range(top, bottom, _ROWS):
                rows = torch.arange(row, min(row + _ROWS, bottom), device=local.device)
                drawn = draw_rows(spec, self.layer, [head], rows - n * m, m, less_identity=apart)
                local[rows - first] = drawn[0].to(local.dtype)

    def _save_to_state_dict(self, *args: Any) -> None:
        """Nothing is saved: the matrices are a function of the seed."""

    def _load_from_state_dict(self, *args: Any) -> None:
        """And nothing is loaded."""


class MixingAttention(BaseAttention):
    """wo(A (wv x)): values are mixed by a matrix that no input changes, of MixiT or of another
    mixer by position. MixiT's takes the table of documents, which the model makes once for all
    layers, in place of masks."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseAttention.Config):
        wv: Linear.Config
        wo: Linear.Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head_dim = config.wv.out_features // config.n_heads
        self.wv = config.wv.build()
        self.wo = config.wo.build()
        self.inner_attention = config.inner_attention.build()

    def forward(
        self,
        x_BLD: torch.Tensor,
        attention_masks: AttentionMasksType | None,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        v_BLNH = self.wv(x_BLD).unflatten(-1, (-1, self.head_dim))
        if isinstance(self.inner_attention, InnerMixing):
            mixed_BLNH = self.inner_attention(v_BLNH, documents=attention_masks)
        else:
            mixed_BLNH = self.inner_attention(v_BLNH, positions=positions)
        return self.wo(mixed_BLNH.flatten(2))


@functools.cache
def _log_form(form: Form) -> None:
    """Once a process, not once a layer."""
    slow = form == "generated" and not has_gpu()
    logger.info(
        f"Mixing matrices are {form}"
        + (", which without a GPU saves memory and costs time" if slow else "")
    )
