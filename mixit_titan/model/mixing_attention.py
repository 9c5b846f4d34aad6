"""The layer around every mixer by position, and the position embedding that it needs.

Shapes: B batch, L length, D width, N heads, H head width.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import DTensor
from torchtitan.models.common import Embedding, Linear
from torchtitan.models.common.attention import AttentionMasksType, BaseAttention

from mixit_titan.model.mixers.mixing import InnerMixing


class PositionedEmbedding(Embedding):
    """Adds one learned vector per position to the token embedding.

    The positions live in this module, not beside it, so that torchtitan's pipeline splitting and
    FSDP wrapping, which match module names, include them.
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
        # Sharded like the tokens: a rank has some rows, and the sum over the ranks is the
        # embedding.
        chunk = -(-self.seq_len // dist.get_world_size(self.tp_group))
        place = positions - chunk * dist.get_rank(self.tp_group)
        ours = (place >= 0) & (place < len(weight))
        looked_up = F.embedding(place.clamp(0, len(weight) - 1), weight)
        return super().forward(input) + looked_up * ours.unsqueeze(-1)


class MixingAttention(BaseAttention):
    """Computes wo(A (wv x)): values are mixed by a matrix that does not depend on the input,
    MixiT's or that of another mixer by position. In place of masks MixiT's takes the table of
    documents, which the model makes once for all layers."""

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
