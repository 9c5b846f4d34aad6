"""A sweep of learning rates at each width, to see whether the best rate moves with width.

The loss of a run is the mean over its last steps, on text that it has not seen. The best rate is
the vertex of the parabola through the lowest loss and its neighbors in log rate; where the lowest
loss is at an end of the grid, it is only known to lie there or beyond.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mixit_titan.analysis.coordinate_models import Family, batches, build, loss_of, optimizer
from mixit_titan.analysis.coordinates import DEPTH

FAMILIES = (
    *(Family(variant) for variant in ("standard", "frozen_qk", "frozen_mlp", "mixit")),
    Family("standard", mup=True),
    Family("mixit", mup=True),
)
_TAIL = 0.1
"""The share of the steps, at the end, whose mean loss is the loss of a run."""
_WARMUP = 0.1


def rate_transfer(
    *,
    widths: Sequence[int],
    rates: Sequence[float],
    steps: int,
    families: Sequence[Family] = FAMILIES,
) -> dict[str, Any]:
    """Train every family at every width and rate; `slope` is that of log best rate over log width,
    without the widths whose best rate is at an end of the grid."""
    text = list(batches(steps))
    found = []
    for family in families:
        rows = []
        for width in widths:
            losses = [_train(family, width, rate, text) for rate in rates]
            rows.append({"width": width, "losses": losses, **best_rate(rates, losses)})
        inside = [row for row in rows if not row["at_edge"]]
        slope = None
        if len(inside) > 1:
            logs = np.log([row["width"] for row in inside]), np.log([r["rate"] for r in inside])
            slope = float(np.polyfit(*logs, 1)[0])
        found.append({"family": family.name, "rows": rows, "slope": slope})
    return {"rates": list(rates), "steps": steps, "depth": DEPTH, "families": found}


def best_rate(rates: Sequence[float], losses: Sequence[float]) -> dict[str, Any]:
    """The best rate, its loss, and whether it is at an end of the grid."""
    finite = [loss if math.isfinite(loss) else math.inf for loss in losses]
    at = int(np.argmin(finite))
    near = finite[max(0, at - 1) : at + 2]
    if at in (0, len(rates) - 1) or not np.isfinite(near).all():
        return {"rate": rates[at], "loss": finite[at], "at_edge": True}
    x = np.log(rates[at - 1 : at + 2])
    a, b, c = np.polyfit(x - x[1], near, 2)
    vertex = -b / (2 * a) if a > 0 else 0.0
    return {
        "rate": float(np.exp(x[1] + vertex)),
        "loss": float(a * vertex**2 + b * vertex + c),
        "at_edge": False,
    }


def _train(family: Family, width: int, rate: float, text: Sequence[Any]) -> float:
    """Train with linear warm-up and linear decay to zero; returns the final loss."""
    model = build(family, width, DEPTH)
    update, steps = optimizer(model, family, width, rate), len(text)
    peaks = [group["lr"] for group in update.param_groups]
    warm, losses = max(1, round(_WARMUP * steps)), []
    for step, tokens_BT in enumerate(text):
        share = min((step + 1) / warm, (steps - step) / max(1, steps - warm))
        for group, peak in zip(update.param_groups, peaks, strict=True):
            group["lr"] = peak * share
        loss = loss_of(model, tokens_BT)
        update.zero_grad()
        loss.backward()
        update.step()
        losses.append(float(loss.detach()))
    return float(np.mean(losses[-max(1, round(_TAIL * steps)) :]))
