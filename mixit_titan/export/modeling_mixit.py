"""A trained stack in plain PyTorch: `Mixit.load(folder)` is a module from tokens to logits.

Random mixing matrices are not stored in any file. They are drawn from the seed in config.json when
a sequence first needs them, up to its length.

Shapes: B batch, T new tokens, L all tokens, D width, V vocabulary.
"""

import json
import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

from mixit_titan.export.modeling_mixers import Places, ScaledLinear, build_mixer, linear


class PositionedEmbedding(nn.Embedding):
    """Token embedding plus one learned vector per position."""

    def __init__(self, vocab: int, width: int, length: int) -> None:
        super().__init__(vocab, width)
        self.position_weight = nn.Parameter(torch.zeros(length, width))

    def forward(self, input: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Embed tokens at these positions."""
        return super().forward(input) + F.embedding(positions, self.position_weight)


class FeedForward(nn.Module):
    """w2(gate(w1 x) * w3 x), with SiLU or, if there is a slope, LeakyReLU and its He gain."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width, hidden = config["hidden_size"], config["intermediate_size"]
        self.w1 = linear(config, width, hidden)
        self.w2 = ScaledLinear(hidden, width, bias=config["bias"], factor=config["down_factor"])
        self.w3 = linear(config, width, hidden)
        self.slope = config["gate_slope"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The MLP."""
        if self.slope is None:
            return self.w2(F.silu(self.w1(x)) * self.w3(x))
        gain = math.sqrt(2 / (1 + self.slope**2))
        return self.w2(gain * F.leaky_relu(self.w1(x), self.slope) * self.w3(x))


class Block(nn.Module):
    """h = skip x + branch mixer(norm(x));  out = skip h + branch mlp(norm(h))"""

    def __init__(self, config: dict[str, Any], layer: int) -> None:
        super().__init__()
        self.attention = build_mixer(config, layer)
        self.feed_forward = FeedForward(config)
        self.attention_norm = nn.RMSNorm(config["hidden_size"], eps=config["rms_norm_eps"])
        self.ffn_norm = nn.RMSNorm(config["hidden_size"], eps=config["rms_norm_eps"])
        self.skip, self.branch = config["skip"], config["branch"]

    def forward(self, x: torch.Tensor, places: Places, past: Any) -> torch.Tensor:
        """One layer."""
        h = self.skip * x + self.branch * self.attention(self.attention_norm(x), places, past)
        return self.skip * h + self.branch * self.feed_forward(self.ffn_norm(h))


class Mixit(nn.Module):
    """The complete model."""

    def __init__(self, config: dict[str, Any]) -> None:
        """`config` is the content of config.json."""
        super().__init__()
        vocab, width = config["vocab_size"], config["hidden_size"]
        self.length = config["max_position_embeddings"]
        self.positioned = config["learned_positions"]
        if self.positioned:
            self.tok_embeddings = PositionedEmbedding(vocab, width, self.length)
        else:
            self.tok_embeddings = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(
            Block(config, layer) for layer in range(config["num_hidden_layers"])
        )
        self.norm = nn.RMSNorm(width, eps=config["rms_norm_eps"])
        self.factor, self.lm_head = config["linear_factor"], None
        if not config["tie_word_embeddings"]:
            self.lm_head = nn.Linear(width, vocab, bias=False)

    @classmethod
    def load(cls, folder: str | Path) -> "Mixit":
        """The model in an exported folder, in evaluation mode."""
        config = json.loads((Path(folder) / "config.json").read_text())
        model = cls(config)
        model.load_state_dict(load_file(Path(folder) / "model.safetensors"))
        return model.eval()

    def forward(
        self,
        tokens_BT: torch.Tensor,
        mask_BL: torch.Tensor | None = None,
        past: Any = None,
        last: int = 0,
    ) -> torch.Tensor:
        """Logits (B, T, V) of tokens that follow those in `past`, a cache of transformers; only
        those of the `last` tokens, if it is not 0. `mask_BL` is 0 where a token, cached or new, is
        padding."""
        places = self._places(tokens_BT, mask_BL, 0 if past is None else past.get_seq_length())
        if self.positioned:
            new = places.positions_BL[:, places.first :]
            h_BTD = self.tok_embeddings(tokens_BT, new)
        else:
            h_BTD = self.tok_embeddings(tokens_BT)
        for layer in self.layers:
            h_BTD = layer(h_BTD, places, past)
        head = self.lm_head or self.tok_embeddings
        return self.factor * F.linear(self.norm(h_BTD[:, -last:]), head.weight)

    def _places(self, tokens_BT: torch.Tensor, mask_BL: torch.Tensor | None, first: int) -> Places:
        end = first + tokens_BT.shape[1]
        if end > self.length:
            raise ValueError(f"{end} tokens, but the model has {self.length} positions")
        if mask_BL is not None and mask_BL.shape != (len(tokens_BT), end):
            raise ValueError(
                f"attention_mask has the shape {tuple(mask_BL.shape)}: it must have one column for "
                f"each token, cached ones included, {(len(tokens_BT), end)}"
            )
        if mask_BL is None or mask_BL.all():
            return Places(first, end, torch.arange(end, device=tokens_BT.device)[None], None)
        positions_BL = (mask_BL.long().cumsum(1) - 1).clamp_min(0)
        return Places(first, end, positions_BL, mask_BL.bool())
