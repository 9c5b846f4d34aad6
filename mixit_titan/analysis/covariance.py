"""Table 7: how alike the last layer's states of different tokens are.

The states h_i (width n) are those after the last layer, before the last norm. Of two tokens i != j
of a sequence

    covariance = sum over features f of (h_if - mean_f h_i) (h_jf - mean_f h_j) / (n - 1)
    cosine     = h_i . h_j / (|h_i| |h_j|)

each averaged over all pairs of a sequence, then over the sequences. The covariance grows with the
size of the states, the cosine does not: close to 1, all tokens have become the same.
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
    """Rows of untrained models over depth: softmax attention (`random`) and `mixit`."""
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
    """A run's own model before and after training, and untrained ones of its size over depth."""
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
    """Of what is not on the diagonal."""
    length = len(matrix_LL)
    return ((matrix_LL.sum() - matrix_LL.trace()) / (length * (length - 1))).item()
