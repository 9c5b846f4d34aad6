"""Attention within documents where there is neither flex nor varlen attention, as on a CPU.

Shapes: B batch, L length, N heads, H head width.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torchtitan.models.common.attention import ScaledDotProductAttention

from mixit_titan.kernels.mixing import same_document


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
        if attention_masks is None:
            return super().forward(q_BLNH, k_BLNH, v_BLNH, scale=scale, enable_gqa=enable_gqa)
        out_BNLH = F.scaled_dot_product_attention(
            q_BLNH.transpose(1, 2),
            k_BLNH.transpose(1, 2),
            v_BLNH.transpose(1, 2),
            attn_mask=attention_masks,
            scale=scale,
            enable_gqa=enable_gqa,
        )
        return out_BNLH.transpose(1, 2)
