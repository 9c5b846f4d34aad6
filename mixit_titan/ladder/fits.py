"""The fits of each stack: a surface over N and D, and a curve over FLOPs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixit_titan.ladder.bootstrap import Fit, TooFew, fit_with_draws
from mixit_titan.ladder.points import Point, flops, frontier, losses, sizes
from mixit_titan.ladder.power_law import EXPONENTS, PowerLaw


@dataclass(frozen=True)
class StackFits:
    """The two fits of one stack."""

    surface: Fit | None
    """L(N, D), fitted to all runs."""
    curve: Fit | None
    """L(C), fitted to the runs on the compute frontier, which no cheaper run beats."""
    missing: tuple[str, ...]
    """Why there is no surface or no curve, one sentence each."""


def fit_stacks(points: Sequence[Point], stacks: Sequence[str]) -> dict[str, StackFits]:
    """Fit both laws to the runs of every stack."""
    return {
        stack: _fit([point for point in points if point.run.stack == stack]) for stack in stacks
    }


def _fit(points: Sequence[Point]) -> StackFits:
    best = frontier(points)
    surface, no_surface = _try(sizes(points), losses(points))
    curve, no_curve = _try(flops(best), losses(best))
    if no_curve and best:
        no_curve += f" on the frontier of {len(points)} runs"
    return StackFits(surface, curve, tuple(filter(None, (no_surface, no_curve))))


def _try(sizes_nK: Any, loss_n: Any) -> tuple[Fit | None, str]:
    try:
        return fit_with_draws(sizes_nK, loss_n), ""
    except TooFew as why:
        return None, str(why)


def surface_json(fit: Fit) -> dict[str, Any]:
    """The parameters of L(N, D) with their intervals."""
    return _json(
        fit,
        {
            "E": lambda law: law.floor,
            "A": lambda law: law.scales[0],
            "alpha": lambda law: law.exponents[0],
            "B": lambda law: law.scales[1],
            "beta": lambda law: law.exponents[1],
        },
    )


def curve_json(fit: Fit) -> dict[str, Any]:
    """The parameters of L(C) with their intervals."""
    return _json(
        fit,
        {
            "E": lambda law: law.floor,
            "A": lambda law: law.scales[0],
            "gamma": lambda law: law.exponents[0],
        },
    )


def _json(fit: Fit, parameters: dict[str, Callable[[PowerLaw], float]]) -> dict[str, Any]:
    found: dict[str, Any] = {"runs": len(fit.residuals), "error": fit.error}
    for name, of in parameters.items():
        # An interval is widened around the value, but no parameter can leave its range.
        low, high = (0.0, np.inf) if name in ("E", "A", "B") else EXPONENTS
        interval = [float(np.clip(end, low, high)) for end in fit.interval(of)]
        found[name] = {"value": of(fit.law), "interval": interval}
    return found
