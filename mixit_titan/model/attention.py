"""What torchtitan's attention lacks: documents without flex or varlen attention, as on a CPU, and
rotary embeddings with less to copy.

Shapes: B batch, L length, N heads, H head width.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torchtitan.models.common import CosSinRoPE
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.common.rope import ComplexRoPE

from mixit_titan.kernels.documents import same_document


def document_mask(positions_BL: torch.Tensor) -> torch.Tensor:
    """(B, 1, L, L): what each token sees, namely its own document up to itself. Made once for all
    layers."""
    return same_document(positions_BL).tril().unsqueeze(1)


class DocumentAttention(ScaledDotProductAttention):
    """torchtitan's SDPA, which is causal over whole rows; with a mask, causal within documents."""

    @dataclass(kw_only=True, slots=True)
    class Config(ScaledDotProductAttention.Config):
        pass

    def forward(
        self,
        q_BLNH: torch.Tensor,
        k_BLNH: torch.Tensor,
        v_BLNH: torch.Tensor,
        *,
        attention_masks: torch.Tensor | None = None,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        seen = self.seen(q_BLNH, attention_masks)
        if seen is None:
            return super().forward(q_BLNH, k_BLNH, v_BLNH, scale=scale, enable_gqa=enable_gqa)
        out_BNLH = F.scaled_dot_product_attention(
            q_BLNH.transpose(1, 2),
            k_BLNH.transpose(1, 2),
            v_BLNH.transpose(1, 2),
            attn_mask=seen,
            scale=scale,
            enable_gqa=enable_gqa,
        )
        return out_BNLH.transpose(1, 2)

    def seen(self, q_BLNH: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor | None:
        """What each query sees, of what the mask of the documents lets it; None: all up to
        itself."""
        return mask


class HalvesRoPE(CosSinRoPE):
    """The same numbers as CosSinRoPE: (a, b) -> (a cos - b sin, b cos + a sin), a and b the halves
    of a head. torchtitan turns a whole copy of the head around first, and its slices are filled up
    with zeros in the backward pass. And it has Llama 3.1's scaling, which torchtitan gives to
    complex rotary embeddings only."""

    @dataclass(kw_only=True, slots=True)
    class Config(CosSinRoPE.Config):
        pass

    def _precompute_cache(self) -> torch.Tensor:
        if self.config.scaling != "llama":
            return super()._precompute_cache()
        turns = ComplexRoPE._precompute_cache(self)
        return torch.cat([turns.real, turns.real, turns.imag, turns.imag], dim=-1)

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
