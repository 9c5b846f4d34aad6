"""A coordinate check: how large activations are over width and depth, at initialization and after
some steps, and how fast they grow (Yang et al., Tensor Programs V, appendix D).

    size      root mean square of a coordinate: of the states after the last layer, of the logits
    moved     of their difference to initialization, on the same text
    slope     of log size over log width, or over log depth: 0 where it does not change

A parametrization transfers rates over width if nothing grows or dies with width: slopes near 0.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from mixit_titan.analysis.coordinate_models import (
    FAMILIES,
    Family,
    batches,
    build,
    loss_of,
    optimizer,
)
from mixit_titan.analysis.hooks import hidden_states

RATE = 2e-3
DEPTH, WIDTH = 2, 64
"""What does not change while the other does."""
SIZES = ("state", "logits", "state_after", "logits_after", "state_moved", "logits_moved")


def coordinates(
    *,
    widths: Sequence[int],
    depths: Sequence[int],
    steps: int,
    families: Sequence[Family] = FAMILIES,
) -> dict[str, Any]:
    """Rows of sizes for each family, and their slopes."""
    text = list(batches(steps + 1))
    found = []
    for family in families:
        sized = {
            "width": [(width, DEPTH) for width in widths],
            "depth": [(WIDTH, depth) for depth in depths],
        }
        places = dict.fromkeys([*sized["width"], *sized["depth"]])
        by_size = {at: _sizes(family, *at, text) for at in places}
        rows = [{"width": w, "depth": d, **row} for (w, d), row in by_size.items()]
        slopes = {
            over: {size: _slope([at[n] for at in places], [by_size[at][size] for at in places])
                   for size in SIZES}
            for n, (over, places) in enumerate(sized.items())
        }  # fmt: skip
        found.append({"family": family.name, "rows": rows, "slopes": slopes})
    return {"rate": RATE, "steps": steps, "depth": DEPTH, "width": WIDTH, "families": found}


def _sizes(
    family: Family, width: int, depth: int, text: Sequence[torch.Tensor]
) -> dict[str, float]:
    model = build(family, width, depth)
    *training, seen = text
    before = _activations(model, seen)
    update = optimizer(model, family, width, RATE)
    for tokens_BT in training:
        loss = loss_of(model, tokens_BT)
        update.zero_grad()
        loss.backward()
        update.step()
    after = _activations(model, seen)
    return {
        **{name: _rms(x) for name, x in before.items()},
        **{f"{name}_after": _rms(x) for name, x in after.items()},
        **{f"{name}_moved": _rms(after[name] - before[name]) for name in before},
        "loss": float(loss.detach()),
    }


@torch.no_grad()
def _activations(model: nn.Module, tokens_BT: torch.Tensor) -> dict[str, torch.Tensor]:
    tokens_BL = tokens_BT[:, :-1]
    return {"state": hidden_states(model, tokens_BL)[-1], "logits": model(tokens_BL)}


def _rms(x: torch.Tensor) -> float:
    return float(x.float().square().mean().sqrt())


def _slope(sizes: Sequence[int], values: Sequence[float]) -> float | None:
    """None where there is one size only, or something that never moves."""
    if len(sizes) < 2 or min(values) <= 0 or not np.isfinite(values).all():
        return None
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
