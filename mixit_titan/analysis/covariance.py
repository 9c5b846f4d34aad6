"""Table 7: how similar the last hidden states of different tokens are.

The states h_i (width n) are those after the last layer, before the final norm. For two tokens
i != j of a sequence,

    covariance = sum over features f of (h_if - mean_f h_i) (h_jf - mean_f h_j) / (n - 1)
    cosine     = h_i . h_j / (|h_i| |h_j|)

each averaged over all pairs of a sequence, then over the sequences. The covariance grows with the
norm of the states; the cosine does not, and near 1 it means that all tokens have collapsed into one
direction.
"""

from collections.abc import Sequence
from typing import Any

import torch

from mixit_titan.analysis.hooks import hidden_states
from mixit_titan.analysis.sequences import Sequences
from mixit_titan.analysis.untrained import Start
from mixit_titan.model.llama import MixitLlama

VARIANTS_AT_START = ("random", "mixit")


def token_covariance(model: MixitLlama, sequences: Sequences) -> dict[str, float]:
    """The mean covariance and cosine of two tokens; padding and single tokens are left out."""
    covariances, cosines = [], []
    for batch in sequences.batches():
        last_BLD = hidden_states(model, batch.tokens_NL)[-1].double().cpu()
        for h_LD, length in zip(last_BLD, batch.lengths_N.tolist(), strict=True):
            if length > 1:
                h_LD = h_LD[:length]
                covariances.append(_mean_of_pairs(torch.cov(h_LD)))
                unit_LD = h_LD / h_LD.norm(dim=-1, keepdim=True)
                cosines.append(_mean_of_pairs(unit_LD @ unit_LD.T))
    return {
        "covariance": sum(covariances) / len(covariances),
        "cosine": sum(cosines) / len(cosines),
    }


def start_rows(start: Start, sequences: Sequences, depths: Sequence[int]) -> list[dict[str, Any]]:
    """Rows for untrained models of each depth: softmax attention (`random`) and `mixit`."""
    return [
        {
            "variant": variant,
            "layers": layers,
            "trained": False,
            **token_covariance(start(variant, layers), sequences),
        }
        for variant in VARIANTS_AT_START
        for layers in depths
    ]


def covariance(
    variant: str,
    trained: MixitLlama,
    own_start: MixitLlama,
    start: Start,
    sequences: Sequences,
    *,
    depths: Sequence[int],
) -> dict[str, Any]:
    """Compare a run's model before and after training with untrained models of each depth."""
    own = {"variant": variant, "layers": len(trained.layers)}
    rows = [
        {**own, "trained": False, **token_covariance(own_start, sequences)},
        {**own, "trained": True, **token_covariance(trained, sequences)},
    ]
    for row in start_rows(start, sequences, depths):
        if (row["variant"], row["layers"]) != (own["variant"], own["layers"]):
            rows.append(row)
    return {"rows": rows, "sequences": sequences.described}


def _mean_of_pairs(matrix_LL: torch.Tensor) -> float:
    """The mean of the off-diagonal entries."""
    length = len(matrix_LL)
    return ((matrix_LL.sum() - matrix_LL.trace()) / (length * (length - 1))).item()
