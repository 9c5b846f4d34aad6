"""Which heads look where: induction heads and previous-token heads, by the mass of their maps.

An induction head looks at the token after the last earlier occurrence of the current one: in
`... A B ... A` from the second A at B. A previous-token head looks one position back. Together they
make the circuit of retrieval. Layers and heads are indices from 0 here; pictures and tables count
from 1, as the paper does.

Shapes: N heads, L length.
"""

from typing import Any

import torch

from mixit_titan.analysis.hooks import attention_maps
from mixit_titan.analysis.sequences import Sequences
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.stack import Stack

SCORES = ("induction", "previous")


def attention(model: MixitLlama, sequences: Sequences) -> dict[str, Any]:
    """Scores of all heads, each the mean mass over all places of all sequences, and the best head
    of each kind; None where no place counts. `uniform` is what a head that looks at its whole
    prefix alike would score."""
    sums: dict[str, torch.Tensor | float] = dict.fromkeys(SCORES, 0.0)
    uniform, places = dict.fromkeys(SCORES, 0.0), dict.fromkeys(SCORES, 0)
    for n in range(len(sequences)):
        tokens_1L = sequences.row(n)
        maps = [maps_1NLL[0] for maps_1NLL in attention_maps(model, tokens_1L)]
        for kind, looks in targets(tokens_1L[0].tolist(), sequences.asked_NL[n].tolist()).items():
            if looks:
                i, j = torch.tensor(looks).T
                sums[kind] += torch.stack([m_NLL[:, i, j].sum(-1) for m_NLL in maps]).cpu()
                uniform[kind] += (1 / (i + 1)).sum().item()
                places[kind] += len(looks)
    scores = {kind: sums[kind] / places[kind] for kind in SCORES if places[kind]}
    layers, heads = len(model.layers), model.config.shape.heads
    return {
        "heads": [
            {
                "layer": layer,
                "head": head,
                **{k: scores[k][layer, head].item() if k in scores else None for k in SCORES},
            }
            for layer in range(layers)
            for head in range(heads)
        ],
        **{f"{kind}_head": _best(scores.get(kind), model.config.stack) for kind in SCORES},
        "uniform": {k: uniform[k] / places[k] if places[k] else None for k in SCORES},
        "places": places,
        "sequences": sequences.described,
    }


def targets(tokens: list[int], asked: list[bool]) -> dict[str, list[tuple[int, int]]]:
    """(i, j): places i where a head of a kind would look at j. Induction counts where the model is
    asked, and not where the target is the place itself, as at the second A of `A A`."""
    induction, last = [], {}
    for i, token in enumerate(tokens):
        if asked[i] and token in last and last[token] + 1 < i:
            induction.append((i, last[token] + 1))
        last[token] = i
    return {"induction": induction, "previous": [(i, i - 1) for i in range(1, len(tokens))]}


def _best(scores: torch.Tensor | None, stack: Stack) -> dict[str, Any] | None:
    """Among the layers that attend, if any: no token chooses where a mixing head looks."""
    if scores is None:
        return None
    if stack.attends:
        mixing = [n for n, pair in enumerate(stack.fill(len(scores))) if not pair.attends]
        scores = scores.index_fill(0, torch.tensor(mixing, dtype=torch.long), -torch.inf)
    layer, head = divmod(int(scores.argmax()), scores.shape[1])
    return {"layer": layer, "head": head, "score": scores[layer, head].item()}
