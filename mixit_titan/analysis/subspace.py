"""How low-dimensional the hidden states are, after Zhong and Andreas.

Measured over the states of all tokens: the share of their variance along the top 10 principal
directions, and in the top 10 neurons (coordinates). The uniform baseline is 10 / width, the share
of any 10 neurons if all had the same variance.

Shapes: T tokens, D width.
"""

from typing import Any

import torch

from mixit_titan.analysis.hooks import hidden_states
from mixit_titan.analysis.sequences import Sequences
from mixit_titan.model.llama import MixitLlama

TOP = 10


class Moments:
    """Accumulates the covariance of states over batches."""

    def __init__(self, width: int) -> None:
        self.count = 0
        self.sum_D = torch.zeros(width, dtype=torch.float64)
        self.square_DD = torch.zeros(width, width, dtype=torch.float64)

    def add(self, states_TD: torch.Tensor) -> None:
        """Add the states of more tokens."""
        states_TD = states_TD.double().cpu()
        self.count += len(states_TD)
        self.sum_D += states_TD.sum(0)
        self.square_DD += states_TD.T @ states_TD

    def covariance(self) -> torch.Tensor:
        """The covariance (D, D) of all states so far."""
        mean_D = self.sum_D / self.count
        return self.square_DD / self.count - mean_D.outer(mean_D)


def explained(covariance_DD: torch.Tensor) -> dict[str, float]:
    """The shares of variance in the top principal directions and in the top neurons."""
    total = covariance_DD.trace()
    directions, neurons = torch.linalg.eigvalsh(covariance_DD), covariance_DD.diagonal()
    top = min(TOP, len(neurons))
    return {
        "principal": (directions.topk(top).values.sum() / total).item(),
        "neurons": (neurons.topk(top).values.sum() / total).item(),
    }


def subspace(model: MixitLlama, sequences: Sequences) -> dict[str, Any]:
    """One row per layer: row 0 describes the embedding, row l the states after layer l."""
    moments = [Moments(model.config.dim) for _ in range(len(model.layers) + 1)]
    for batch in sequences.batches():
        real_BL = torch.arange(batch.tokens_NL.shape[1]) < batch.lengths_N.unsqueeze(1)
        states = hidden_states(model, batch.tokens_NL)
        for layer, states_BLD in zip(moments, states, strict=True):
            layer.add(states_BLD.cpu()[real_BL])
    rows = [{"layer": n, **explained(layer.covariance())} for n, layer in enumerate(moments)]
    return {
        "rows": rows,
        "top": TOP,
        "width": model.config.dim,
        "tokens": moments[0].count,
        "sequences": sequences.described,
    }
