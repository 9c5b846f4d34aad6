"""The baselines of Zhong and Andreas: an LSTM, and a transformer with a prefix sum for attention.

Both are trained as a whole.
"""

import torch
from torch import nn
from torchtitan.protocols.module import Module

from mixit_titan.model.build import llama_config
from mixit_titan.model.initialization import Normal, name_parameters
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import VARIANTS

BASELINES = ("lstm", "linear")


class Lstm(nn.Module):
    """Embedding, `layers` LSTMs of `width`, unembedding."""

    def __init__(self, shape: Shape, seed: int) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(shape.vocab, shape.width)
        self.lstm = nn.LSTM(shape.width, shape.width, shape.layers, batch_first=True)
        self.lm_head = nn.Linear(shape.width, shape.vocab, bias=False)
        name_parameters(self, seed)
        for name, param in self.named_parameters():
            if name.startswith("tok_embeddings"):
                Normal(shape.embedding_std)(param)
            elif ".bias" in name:
                nn.init.zeros_(param)
            else:
                Normal(shape.width**-0.5)(param)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.lstm(self.tok_embeddings(tokens))[0]
        return h if self.lm_head is None else self.lm_head(h)


class PrefixSum(Module):
    """out_i = sum over j <= i of v_j, in rows of one sequence each"""

    def forward(
        self, v_BLNH: torch.Tensor, *, documents: torch.Tensor | None = None
    ) -> torch.Tensor:
        assert documents is None
        return v_BLNH.cumsum(1)


def linear_transformer(shape: Shape, seed: int) -> MixitLlama:
    """The model of `mixit`, its random matrices replaced by a lower triangle of ones."""
    model = llama_config(shape, VARIANTS["mixit"], init_seed=seed).build()
    model.init_states()
    for layer in model.layers.values():
        layer.attention.inner_attention = PrefixSum()
    return model
