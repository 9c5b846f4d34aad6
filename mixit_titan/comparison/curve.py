"""The validation loss of a run over steps, tokens, FLOPs and seconds.

    step        0     100     200        of metrics.jsonl
    tokens      0   1.6 M   3.3 M
    flops       0   1.1e13  2.2e13       tokens times FLOPs per token
    seconds     0      41      80        of training: without startup, validation and downtime
    loss     6.24    2.31    1.94        nats per token, or bits per byte

Between two validations, the curve is interpolated linearly.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Axis = Literal["steps", "tokens", "flops", "seconds"]
AXES: tuple[Axis, ...] = ("steps", "tokens", "flops", "seconds")
BUDGETS: tuple[Axis, ...] = ("tokens", "flops", "seconds")
"""The quantities that a comparison holds equal."""
Loss = Literal["validation_loss", "bits_per_byte", "test_loss"]
_STEP = 0.01
"""A step of a short run, as a share of it: runs of one budget differ by up to this much."""


@dataclass(frozen=True)
class Curve:
    """A loss curve: one point per validation, over each of the axes."""

    at: dict[Axis, np.ndarray]
    """Axis -> its value at each validation, in increasing order."""
    loss: np.ndarray

    def end(self, axis: Axis) -> float:
        """Where the curve ends."""
        return float(self.at[axis][-1])

    def loss_at(self, axis: Axis, budget: float) -> float | None:
        """The interpolated loss at `budget`; None where it is unknown: beyond the end of the curve
        by more than a step, and between initialization and the first
        validation after it."""
        x = self.at[axis]
        if np.isclose(budget, x[-1], rtol=_STEP):
            return float(self.loss[-1])
        if not self._known_from(axis) <= budget <= x[-1]:
            return None
        return float(np.interp(budget, x, self.loss))

    def _known_from(self, axis: Axis) -> float:
        """The first validation after initialization: a line from there would say nothing."""
        x = self.at[axis]
        return float(x[1] if len(x) > 1 and x[0] == 0 else x[0])

    def fall_around(self, axis: Axis, budget: float) -> float:
        """The relative drop in loss between the two validations around `budget`; 0 at a
        validation, and where the loss is unknown."""
        x = self.at[axis]
        n = int(np.searchsorted(x, budget))
        if n == len(x) or np.isclose(x[n], budget) or np.isclose(budget, x[-1], rtol=_STEP):
            return 0.0
        if budget < self._known_from(axis):
            return 0.0
        return float(1 - self.loss[n] / self.loss[n - 1])

    def budget_for(self, axis: Axis, loss: float) -> float | None:
        """Where the curve first reaches `loss` or less; None if it never does, or somewhere before
        the first validation."""
        below = np.flatnonzero(self.loss <= loss)
        if not len(below):
            return None
        last = below[0]
        if self.at[axis][last] <= self._known_from(axis):
            return None if last and self.loss[last] < loss else float(self.at[axis][last])
        x, y = self.at[axis][last - 1 : last + 1], self.loss[last - 1 : last + 1]
        return float(x[0] + (y[0] - loss) / (y[0] - y[1]) * (x[1] - x[0]))


def read_curve(
    lines: Sequence[dict[str, Any]],
    loss: Loss,
    phases: Sequence[tuple[int, float]],
    starts: Iterable[int] = (0,),
) -> Curve:
    """Build a curve from the lines of a metrics.jsonl, with one point per validation whose loss is
    finite. `phases`: pairs of a step and the FLOPs per token from there on; `starts`: the steps
    after which the run was started or resumed."""
    trained = [line for line in lines if line.get("loss") is not None]
    steps = np.array([0, *(line["step"] for line in trained)], dtype=float)
    tokens = np.array([0, *(line["tokens"] for line in trained)], dtype=float)
    seconds = np.cumsum([0.0, *training_seconds(trained, starts)])
    found = {
        line["step"]: line[loss]
        for line in lines
        if line.get(loss) is not None and np.isfinite(line[loss]) and line["step"] <= steps[-1]
    }
    at = np.array(sorted(found), dtype=float)
    seen = np.interp(at, steps, tokens)
    ends = [*(after for after, _ in phases[1:]), np.inf]
    flops = np.zeros(len(at))
    for (after, each), end in zip(phases, ends, strict=True):
        start, stop = (np.interp(np.minimum(at, step), steps, tokens) for step in (after, end))
        flops += each * (stop - start)
    return Curve(
        at={
            "steps": at,
            "tokens": seen,
            "flops": flops,
            "seconds": np.interp(at, steps, seconds),
        },
        loss=np.array([found[step] for step in sorted(found)]),
    )


def training_seconds(
    trained: Sequence[dict[str, Any]], starts: Iterable[int] = (0,)
) -> list[float]:
    """The seconds of training between each logged step and the one before. torchtitan measures
    tokens/s without validations, and separately after each start of a run, so no downtime is
    included. The first step after a start compiles, so the first logged rate is replaced by the
    next one, or else by the last one before it."""
    before = [0, *(line["tokens"] for line in trained)]
    rates = [line["tokens_per_s"] for line in trained]
    steps = [line["step"] for line in trained]
    compiled = {bisect_right(steps, start) for start in starts}
    plain = [n for n in range(len(rates)) if n not in compiled]
    for n in compiled & {*range(len(rates))} if plain else ():
        rates[n] = rates[next((m for m in plain if m > n), plain[-1])]
    return [
        (line["tokens"] - seen) / rate
        for line, seen, rate in zip(trained, before, rates, strict=False)
    ]


def crossings(a: Curve, b: Curve, axis: Axis) -> list[tuple[float, float, bool]]:
    """Where curves `a` and `b` cross within their common range: the budget, the loss, and whether
    `a` is the lower one from there on. Crossings before the first validation after initialization
    do not count."""
    first = min((x for curve in (a, b) for x in curve.at[axis] if x > 0), default=0.0)
    low = max(a.at[axis][0], b.at[axis][0], first)
    high = min(a.end(axis), b.end(axis))
    x = np.unique(np.concatenate([a.at[axis], b.at[axis]]))
    x = x[(x >= low) & (x <= high)]
    if len(x) < 2:
        return []
    ya, yb = np.interp(x, a.at[axis], a.loss), np.interp(x, b.at[axis], b.loss)
    gap = ya - yb
    found = []
    for n in np.flatnonzero(gap[:-1] * gap[1:] < 0):
        share = gap[n] / (gap[n] - gap[n + 1])
        at = x[n] + share * (x[n + 1] - x[n])
        loss = ya[n] + share * (ya[n + 1] - ya[n])
        found.append((float(at), float(loss), bool(gap[n] > 0)))
    return found
