"""Rank collapse: the spectrum of products of the mixing matrices of consecutive layers.

A path takes one head of each layer. Its product P = A_d ... A_1 is what attention alone, without
residual connections, does to the values of a sequence. The rows of softmax attention are averages,
and products of averages soon have identical rows: one singular value remains. The rows of MixiT
also sum to 1, but are the identity plus a little noise.

Shapes: N heads, L length.
"""

from collections.abc import Sequence
from typing import Any

import torch

from mixit_titan.analysis.hooks import attention_maps
from mixit_titan.analysis.untrained import Start
from mixit_titan.model.llama import MixitLlama

_VARIANTS = {"mixit": "mixit", "softmax": "random"}


def effective_rank(values_NL: torch.Tensor) -> torch.Tensor:
    """exp of the entropy of the normalized singular values: L if L are equal, 1 if one remains."""
    shares_NL = values_NL / values_NL.sum(-1, keepdim=True)
    return torch.special.entr(shares_NL).sum(-1).exp()


def product_rows(
    kind: str, maps: Sequence[torch.Tensor], depths: Sequence[int]
) -> list[dict[str, Any]]:
    """Rows for the product of the first d layers, for each d in `depths`. `maps`: (N, L, L) for
    each layer. Path n takes head n of each layer; results are means over the paths."""
    rows, product_NLL = [], torch.eye(maps[0].shape[-1], dtype=torch.float64)
    for layers, maps_NLL in enumerate(maps, 1):
        product_NLL = maps_NLL.double().cpu() @ product_NLL
        if layers in depths:
            values_NL = torch.linalg.svdvals(product_NLL)
            rows.append(
                {
                    "kind": kind,
                    "layers": layers,
                    "singular_values": values_NL.mean(0).tolist(),
                    "effective_rank": effective_rank(values_NL).mean().item(),
                }
            )
    return rows


def start_spectrum(start: Start, tokens_1L: torch.Tensor, depths: Sequence[int]) -> dict[str, Any]:
    """The rows of untrained models that read one sequence: `mixit`, and softmax attention."""
    rows = []
    for kind, variant in _VARIANTS.items():
        maps = attention_maps(start(variant, max(depths)), tokens_1L)
        rows += product_rows(kind, [maps_1NLL[0] for maps_1NLL in maps], depths)
    return {"rows": rows, "length": tokens_1L.shape[1]}


def spectrum(
    trained: MixitLlama, start: Start, tokens_1L: torch.Tensor, *, depths: Sequence[int]
) -> dict[str, Any]:
    """The rows of untrained models of a run's size, and those of the run's own maps (kind
    `trained`) if training changed them."""
    found = start_spectrum(start, tokens_1L, depths)
    if trained.config.stack.attends:
        maps = [maps_1NLL[0] for maps_1NLL in attention_maps(trained, tokens_1L)]
        found["rows"] += product_rows("trained", maps, range(1, len(maps) + 1))
    return found
