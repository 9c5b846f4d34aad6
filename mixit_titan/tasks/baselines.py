"""The baselines of Zhong and Andreas: an LSTM, and a transformer with the linear mixer
(model/mixers/linear.py)."""

import torch
from torch import nn

from mixit_titan.model.initialization import Normal, name_parameters
from mixit_titan.model.shapes import Shape

BASELINES = ("lstm", "linear")
"""Models that `task` knows by name, besides the variants."""


class Lstm(nn.Module):
    """An embedding, `layers` LSTMs of `width`, and an unembedding."""

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
