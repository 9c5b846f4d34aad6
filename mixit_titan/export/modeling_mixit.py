"""A trained MixiT, in plain PyTorch: `Mixit.load(folder)` is a module from tokens to logits.

Its mixing matrices are in no file. They are drawn from the seed in config.json when a sequence
first needs them, up to its length.

Shapes: B batch, L length, D width, N heads, H head width.
"""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

from mixit_titan.kernels.mixing import MatrixSpec, mixing_matrix


class ScaledLinear(nn.Linear):
    """factor * (W x + b)"""

    def __init__(self, fan_in: int, fan_out: int, *, bias: bool, factor: float) -> None:
        super().__init__(fan_in, fan_out, bias=bias)
        self.factor = factor

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.factor * super().forward(input)


class PositionedEmbedding(nn.Embedding):
    """Token embedding plus one learned vector per position."""

    def __init__(self, vocab: int, width: int, length: int) -> None:
        super().__init__(vocab, width)
        self.position_weight = nn.Parameter(torch.zeros(length, width))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) + self.position_weight[: input.shape[1]]


class Mixing(nn.Module):
    """wo(A (wv x)), with an A that depends on the layer and not on x."""

    def __init__(self, config: dict[str, Any], layer: int) -> None:
        super().__init__()
        width, settings = config["hidden_size"], _linear_settings(config)
        self.wv = ScaledLinear(width, width, **settings)
        self.wo = ScaledLinear(width, width, **settings)
        self.heads, self.layer = config["num_attention_heads"], layer
        self.spec = MatrixSpec(**config["mixing"])
        self.drawn_NLL = torch.empty(self.heads, 0, 0)

    def forward(self, x_BLD: torch.Tensor) -> torch.Tensor:
        v_BLNH = self.wv(x_BLD).unflatten(-1, (self.heads, -1))
        a_NLL = self.noise(x_BLD.shape[1], x_BLD.device).to(v_BLNH)
        out_BLNH = torch.einsum("nij,bjnh->binh", a_NLL, v_BLNH)
        return self.wo((out_BLNH + v_BLNH if self.spec.identity else out_BLNH).flatten(2))

    def noise(self, length: int, device: torch.device) -> torch.Tensor:
        """A without its identity, which would swallow the rest in bfloat16. The matrix of a shorter
        sequence is the corner of a longer one's."""
        if length > self.drawn_NLL.shape[1]:
            spec = dataclasses.replace(self.spec, length=length)
            a_NLL = mixing_matrix(spec, self.layer, range(self.heads), device="cpu")
            if self.spec.identity:
                a_NLL -= torch.eye(length)
            self.drawn_NLL = a_NLL.to(device)
        return self.drawn_NLL[:, :length, :length]


class FeedForward(nn.Module):
    """w2(gate(w1 x) * w3 x), with SiLU or, if there is a slope, LeakyReLU and its He gain."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width, hidden = config["hidden_size"], config["intermediate_size"]
        self.w1 = ScaledLinear(width, hidden, **_linear_settings(config))
        self.w2 = ScaledLinear(hidden, width, bias=config["bias"], factor=config["down_factor"])
        self.w3 = ScaledLinear(width, hidden, **_linear_settings(config))
        self.slope = config["gate_slope"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.slope is None:
            return self.w2(F.silu(self.w1(x)) * self.w3(x))
        gain = math.sqrt(2 / (1 + self.slope**2))
        return self.w2(gain * F.leaky_relu(self.w1(x), self.slope) * self.w3(x))


class Block(nn.Module):
    """h = skip x + branch mixing(norm(x));  out = skip h + branch mlp(norm(h))"""

    def __init__(self, config: dict[str, Any], layer: int) -> None:
        super().__init__()
        self.attention = Mixing(config, layer)
        self.feed_forward = FeedForward(config)
        self.attention_norm = nn.RMSNorm(config["hidden_size"], eps=config["rms_norm_eps"])
        self.ffn_norm = nn.RMSNorm(config["hidden_size"], eps=config["rms_norm_eps"])
        self.skip, self.branch = config["skip"], config["branch"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.skip * x + self.branch * self.attention(self.attention_norm(x))
        return self.skip * h + self.branch * self.feed_forward(self.ffn_norm(h))


class Mixit(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        """`config` is the content of config.json."""
        super().__init__()
        vocab, width = config["vocab_size"], config["hidden_size"]
        self.length = config["max_position_embeddings"]
        self.tok_embeddings = PositionedEmbedding(vocab, width, self.length)
        self.layers = nn.ModuleList(
            Block(config, layer) for layer in range(config["num_hidden_layers"])
        )
        self.norm = nn.RMSNorm(width, eps=config["rms_norm_eps"])
        self.factor, self.lm_head = config["linear_factor"], None
        if not config["tie_word_embeddings"]:
            self.lm_head = nn.Linear(width, vocab, bias=False)

    @classmethod
    def load(cls, folder: str | Path) -> "Mixit":
        config = json.loads((Path(folder) / "config.json").read_text())
        model = cls(config)
        model.load_state_dict(load_file(Path(folder) / "model.safetensors"))
        return model.eval()

    def forward(self, tokens_BL: torch.Tensor) -> torch.Tensor:
        if tokens_BL.shape[1] > self.length:
            raise ValueError(f"{tokens_BL.shape[1]} tokens: the model has {self.length} positions")
        h_BLD = self.tok_embeddings(tokens_BL)
        for layer in self.layers:
            h_BLD = layer(h_BLD)
        head = self.lm_head or self.tok_embeddings
        return self.factor * F.linear(self.norm(h_BLD), head.weight)


def _linear_settings(config: dict[str, Any]) -> dict[str, Any]:
    return {"bias": config["bias"], "factor": config["linear_factor"]}
