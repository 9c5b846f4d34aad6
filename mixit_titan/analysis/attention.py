"""Induction heads and previous-token heads, found by where their attention mass lies.

An induction head attends to the token after the last earlier occurrence of the current one: in
`... A B ... A`, the query at the second A attends to the key at B. A previous-token head attends
one position back. Together they form the induction circuit, which solves retrieval. Layers and
heads are indices from 0 here; figures and tables count from 1, as the paper does.

Shapes: N heads, L length.
"""

from typing import Any

import torch

from mixit_titan.analysis.hooks import attention_maps
from mixit_titan.analysis.sequences import Sequences
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.stack import Stack

SCORES = ("induction", "previous")
NAMES = {"induction": "induction head", "previous": "previous-token head"}
TIMES_UNIFORM = 2.0
"""How many times the uniform baseline a head's score must be, at least, to be called an induction
head or a previous-token head. Below that, the best head is only the best of a bad lot."""


def attention(model: MixitLlama, sequences: Sequences) -> dict[str, Any]:
    """Score every head, and find the best one of each kind. A score is the attention mass on the
    target key, averaged over the query positions of all sequences; it is None where no position
    counts. `uniform` is the uniform baseline, the score of a head that spreads its attention
    evenly over its prefix."""
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
    """Pairs (i, j) of a query position i and the key position j that a head of each kind would
    attend to. Induction counts only positions where the model has to answer, and none whose target
    is the position itself, as at the second A of `A A`."""
    induction, last = [], {}
    for i, token in enumerate(tokens):
        if asked[i] and token in last and last[token] + 1 < i:
            induction.append((i, last[token] + 1))
        last[token] = i
    return {"induction": induction, "previous": [(i, i - 1) for i in range(1, len(tokens))]}


def stands_out(found: dict[str, Any], kind: str) -> bool:
    """Whether the best head of a kind is far enough above the uniform baseline to bear its name."""
    best = found[f"{kind}_head"]
    return best is not None and best["score"] >= TIMES_UNIFORM * found["uniform"][kind]


def _best(scores: torch.Tensor | None, stack: Stack) -> dict[str, Any] | None:
    """The best head among the layers with attention, if there are any: a mixing head does not
    depend on the tokens."""
    if scores is None:
        return None
    if stack.attends:
        mixing = [n for n, pair in enumerate(stack.fill(len(scores))) if not pair.attends]
        scores = scores.index_fill(0, torch.tensor(mixing, dtype=torch.long), -torch.inf)
    layer, head = divmod(int(scores.argmax()), scores.shape[1])
    return {"layer": layer, "head": head, "score": scores[layer, head].item()}
