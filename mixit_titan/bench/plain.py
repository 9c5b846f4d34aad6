"""A Llama of the same shape in plain PyTorch, which `standard` must not be slower than.

Shapes: B batch, L length, D width, N heads, H head width.
"""

import torch
import torch.nn.functional as F
from torch import nn

from mixit_titan.model.shapes import Shape


class PlainAttention(nn.Module):
    """Causal self-attention with rotary embeddings."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        keys = (shape.kv_heads or shape.heads) * shape.head_dim
        self.grouped = keys != shape.width
        self.wq = nn.Linear(shape.width, shape.width, bias=shape.bias)
        self.wk = nn.Linear(shape.width, keys, bias=shape.bias)
        self.wv = nn.Linear(shape.width, keys, bias=shape.bias)
        self.wo = nn.Linear(shape.width, shape.width, bias=shape.bias)

    def forward(self, x_BLD: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            linear(x_BLD).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for linear in (self.wq, self.wk, self.wv)
        )
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
        out_BNLH = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.grouped)
        return self.wo(out_BNLH.transpose(1, 2).flatten(2))


class PlainBlock(nn.Module):
    """A Llama block with attention and a gated MLP."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.width, eps=shape.norm_eps)
        self.attention = PlainAttention(shape)
        self.mlp_norm = nn.RMSNorm(shape.width, eps=shape.norm_eps)
        self.w1 = nn.Linear(shape.width, shape.hidden, bias=shape.bias)
        self.w2 = nn.Linear(shape.hidden, shape.width, bias=shape.bias)
        self.w3 = nn.Linear(shape.width, shape.hidden, bias=shape.bias)

    def forward(self, x_BLD: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        h_BLD = x_BLD + self.attention(self.attention_norm(x_BLD), cos, sin)
        y_BLD = self.mlp_norm(h_BLD)
        return h_BLD + self.w2(F.silu(self.w1(y_BLD)) * self.w3(y_BLD))


class PlainLlama(nn.Module):
    """The complete model, from tokens to logits."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab, shape.width)
        self.blocks = nn.ModuleList(PlainBlock(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=shape.norm_eps)
        self.head = nn.Linear(shape.width, shape.vocab, bias=False)
        if shape.tied:
            self.head.weight = self.embedding.weight
        for param in self.parameters():
            if param.ndim == 2:
                nn.init.normal_(param, std=0.02)
        steps = torch.arange(0, shape.head_dim, 2) / shape.head_dim
        angles = torch.outer(torch.arange(shape.seq_len), shape.rope_theta**-steps).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens_BL: torch.Tensor) -> torch.Tensor:
        x_BLD = self.embedding(tokens_BL)
        cos, sin = (table[: tokens_BL.shape[1]] for table in (self.cos, self.sin))
        for block in self.blocks:
            x_BLD = block(x_BLD, cos, sin)
        return self.head(self.norm(x_BLD))


def _rotate(x_BNLH: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x_BNLH.chunk(2, dim=-1)
    turned = x_BNLH * cos + torch.cat((-second, first), dim=-1) * sin
    return turned.to(x_BNLH.dtype)
