"""The gap of a stack to standard over scale: at equal tokens, for each rung, and at equal FLOPs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mixit_titan.ladder.bootstrap import Fit, Interval, spread
from mixit_titan.ladder.fits import StackFits
from mixit_titan.ladder.grid import LadderRun
from mixit_titan.ladder.points import Point


@dataclass(frozen=True)
class Gap:
    """The loss of a stack minus that of the baseline, at one scale."""

    at: float
    """The FLOPs of the baseline."""
    depth: int | None
    """The depth of the rung; None at equal FLOPs."""
    measured: float | None
    """The mean over the seeds; None at equal FLOPs, or if a run is missing."""
    fitted: float
    interval: Interval


@dataclass(frozen=True)
class Trend:
    """How the gap changes with scale."""

    slope: float
    """The change of the fitted gap in nats per tenfold FLOPs."""
    interval: Interval
    verdict: str


@dataclass(frozen=True)
class Gaps:
    """All gaps of one stack to the baseline."""

    rungs: tuple[Gap, ...]
    """At equal tokens."""
    budgets: tuple[Gap, ...]
    """At equal FLOPs."""
    trend: Trend | None


def gaps_to(
    stack: str,
    baseline: str,
    fits: dict[str, StackFits],
    points: Sequence[Point],
    rungs: Sequence[LadderRun],
    budgets: Sequence[float],
) -> Gaps:
    """Compute the gaps of `stack` to `baseline`. `rungs` are those of both, finished or not."""
    ours, theirs = fits[stack], fits[baseline]
    by_depth = {(run.stack, run.depth): run for run in rungs}
    at_rungs, found = [], []
    if ours.surface and theirs.surface:
        for depth in sorted({run.depth for run in rungs}):
            mine, base = by_depth[stack, depth], by_depth[baseline, depth]
            draws = _differences(
                (ours.surface, (mine.params, mine.tokens)),
                (theirs.surface, (base.params, base.tokens)),
            )
            found.append(draws)
            at_rungs.append(_gap(base.flops, depth, _measured(mine, base, points), *draws))
    at_budgets = []
    if ours.curve and theirs.curve:
        for budget in budgets:
            draws = _differences((ours.curve, (budget,)), (theirs.curve, (budget,)))
            at_budgets.append(_gap(budget, None, None, *draws))
    trend = _trend([gap.at for gap in at_rungs], found) if len(found) > 1 else None
    return Gaps(tuple(at_rungs), tuple(at_budgets), trend)


def _differences(
    ours: tuple[Fit, tuple[float, ...]], theirs: tuple[Fit, tuple[float, ...]]
) -> tuple[float, np.ndarray, int]:
    """The gap, its bootstrap draws, and the smaller degrees of freedom of the two fits."""
    (a, at), (b, base_at) = ours, theirs
    center = a.law.loss(*at) - b.law.loss(*base_at)
    pairs = zip(a.draws, b.draws, strict=True)
    draws = np.array([one.loss(*at) - other.loss(*base_at) for one, other in pairs])
    return center, draws, min(a.degrees, b.degrees)


def _gap(
    at: float,
    depth: int | None,
    measured: float | None,
    center: float,
    draws: np.ndarray,
    degrees: int,
) -> Gap:
    return Gap(at, depth, measured, center, spread(center, draws, degrees))


def _measured(mine: LadderRun, base: LadderRun, points: Sequence[Point]) -> float | None:
    def mean(run: LadderRun) -> float | None:
        found = [point.loss for point in points if point.run.same_but_seed(run)]
        return float(np.mean(found)) if found else None

    ours, theirs = mean(mine), mean(base)
    return None if ours is None or theirs is None else ours - theirs


def _trend(at: Sequence[float], found: Sequence[tuple[float, np.ndarray, int]]) -> Trend:
    """Fit a line to the gaps over log FLOPs, and one to those of each bootstrap draw."""
    x = np.log10(at)
    center = np.array([each[0] for each in found])
    slope = float(np.polyfit(x, center, 1)[0])
    draws = np.polyfit(x, np.array([each[1] for each in found]), 1)[0]
    low, high = spread(slope, draws, found[0][2])
    if low <= 0 <= high:
        verdict = "undecided"
    else:
        verdict = "closes" if slope * center.mean() < 0 else "widens"
    return Trend(slope, (low, high), verdict)
