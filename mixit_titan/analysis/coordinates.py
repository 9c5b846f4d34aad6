"""A coordinate check: how activations scale with width and depth, at initialization and after a few
steps (Yang et al., Tensor Programs V, appendix D).

    size      root mean square over coordinates, of the last hidden states or of the logits
    moved     the size of their change since initialization, on the same text
    slope     of log size against log width or log depth: 0 where the size does not change

A parametrization transfers learning rates across width if nothing blows up or vanishes with width:
if the slopes are near 0.
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
"""Each is held fixed while the other varies."""
SIZES = ("state", "logits", "state_after", "logits_after", "state_moved", "logits_moved")


def coordinates(
    *,
    widths: Sequence[int],
    depths: Sequence[int],
    steps: int,
    families: Sequence[Family] = FAMILIES,
) -> dict[str, Any]:
    """Measure activation sizes for each family, and fit their slopes over width and depth."""
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
    """The slope in log-log space; None with a single size, or where a value is 0 or not finite."""
    if len(sizes) < 2 or min(values) <= 0 or not np.isfinite(values).all():
        return None
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
