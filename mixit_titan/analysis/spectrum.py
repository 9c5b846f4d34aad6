"""What is left of a sequence after many mixing matrices in a row: rank collapse.

A path takes one head of each layer. Its product P = A_d ... A_1 says what a token's values become
if nothing but attention moves them, without residuals. Rows of softmax attention are averages, and
products of averages soon have all rows alike: one singular value is left. The rows of MixiT sum to
1 as well, but are the identity and a little noise.

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
    """exp of the entropy of singular values, as shares of their sum: L for L alike, 1 for one."""
    shares_NL = values_NL / values_NL.sum(-1, keepdim=True)
    return torch.special.entr(shares_NL).sum(-1).exp()


def product_rows(
    kind: str, maps: Sequence[torch.Tensor], depths: Sequence[int]
) -> list[dict[str, Any]]:
    """`maps`: (N, L, L) of each layer. Path n takes head n of each; singular values and effective
    rank are means over the paths."""
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
    """Untrained models read one sequence: `mixit`, and plain random softmax attention."""
    rows = []
    for kind, variant in _VARIANTS.items():
        maps = attention_maps(start(variant, max(depths)), tokens_1L)
        rows += product_rows(kind, [maps_1NLL[0] for maps_1NLL in maps], depths)
    return {"rows": rows, "length": tokens_1L.shape[1]}


def spectrum(
    trained: MixitLlama, start: Start, tokens_1L: torch.Tensor, *, depths: Sequence[int]
) -> dict[str, Any]:
    """The same at a run's size, and the run's own maps (kind `trained`), if training changed
    them."""
    found = start_spectrum(start, tokens_1L, depths)
    if trained.config.stack.attends:
        maps = [maps_1NLL[0] for maps_1NLL in attention_maps(trained, tokens_1L)]
        found["rows"] += product_rows("trained", maps, range(1, len(maps) + 1))
    return found
