"""The result of a ladder, and ladder.json."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mixit_titan.ladder.best_size import BestSize, best_sizes
from mixit_titan.ladder.fits import StackFits, curve_json, fit_stacks, surface_json
from mixit_titan.ladder.forecast import Forecast
from mixit_titan.ladder.gaps import Gaps, gaps_to
from mixit_titan.ladder.grid import BASELINE, LadderRun
from mixit_titan.ladder.points import Point
from mixit_titan.ladder.scales import Scale

_BEYOND = 10
"""The largest budget with a best size, as a multiple of the FLOPs of the largest run."""


@dataclass(frozen=True)
class Ladder:
    """The runs of a ladder, and everything that follows from them."""

    name: str
    """The name of the scale."""
    scale: Scale
    vocab: int
    runs: Sequence[LadderRun]
    points: Sequence[Point]
    left_out: dict[str, str]
    """The name of a run -> why it has no point."""
    baseline: str
    """The stack that the others are compared with."""
    fits: dict[str, StackFits]
    gaps: dict[str, Gaps]
    """Stack -> its gaps; the baseline has none."""
    best: dict[str, list[BestSize]]
    bigram: float | None
    """The loss of a bigram table on the same rows; None if it would be too large."""
    forecast: Forecast | None
    changes: Sequence[str]
    """Signs that the forecast has changed since it was frozen."""


def make_ladder(
    name: str,
    scale: Scale,
    vocab: int,
    runs: Sequence[LadderRun],
    points: Sequence[Point],
    left_out: dict[str, str],
    bigram: float | None,
    forecast: Forecast | None,
    changes: Sequence[str],
) -> Ladder:
    """Fit all laws, and derive gaps and best sizes from them."""
    fits = fit_stacks(points, scale.stacks)
    baseline = BASELINE if BASELINE in scale.stacks else scale.stacks[0]
    rungs = [run for run in runs if run.series == "rung"]
    largest = max(run.flops for run in runs)
    budgets = [*sorted(scale.budgets), largest]
    return Ladder(
        name=name,
        scale=scale,
        vocab=vocab,
        runs=runs,
        points=points,
        left_out=left_out,
        baseline=baseline,
        fits=fits,
        gaps={
            stack: gaps_to(
                stack,
                baseline,
                fits,
                points,
                [run for run in rungs if run.stack in (stack, baseline)],
                budgets,
            )
            for stack in scale.stacks
            if stack != baseline
        },
        best={
            stack: best_sizes(found.surface, scale, stack, vocab, [*budgets, _BEYOND * largest])
            for stack, found in fits.items()
            if found.surface
        },
        bigram=bigram,
        forecast=forecast,
        changes=changes,
    )


def as_json(ladder: Ladder) -> dict[str, Any]:
    """The content of ladder.json."""
    return {
        "scale": ladder.name,
        "about": ladder.scale.about,
        "text": ladder.scale.text,
        "dial": asdict(ladder.scale.dial),
        "vocab": ladder.vocab,
        "tokens_per_parameter": ladder.scale.tokens_per_parameter,
        "budgets": ladder.scale.budgets,
        "unit": "nats per token",
        "baseline": ladder.baseline,
        "bigram": ladder.bigram,
        "runs_planned": len(ladder.runs),
        "runs": [point.as_json() for point in ladder.points],
        "left_out": [{"run": name, "why": why} for name, why in ladder.left_out.items()],
        "fits": {stack: _fits(found) for stack, found in ladder.fits.items()},
        "gaps": {stack: asdict(found) for stack, found in ladder.gaps.items()},
        "best_size": {stack: [asdict(b) for b in found] for stack, found in ladder.best.items()},
        "forecast": _forecast(ladder),
    }


def _fits(found: StackFits) -> dict[str, Any]:
    return {
        "surface": found.surface and surface_json(found.surface),
        "curve": found.curve and curve_json(found.curve),
        "missing": list(found.missing),
    }


def _forecast(ladder: Ladder) -> dict[str, Any] | None:
    if ladder.forecast is None:
        return None
    return {
        "date": ladder.forecast["date"],
        "sha256": ladder.forecast["sha256"],
        "changes": list(ladder.changes),
        "runs": compared(ladder),
    }


def compared(ladder: Ladder) -> list[dict[str, Any]]:
    """The forecast of each run with its result; empty if there is no valid forecast."""
    if ladder.forecast is None or ladder.changes:
        return []
    results = {point.folder: point.loss for point in ladder.points}
    rows = []
    for row in ladder.forecast["forecast"]:
        result = results.get(row["folder"])
        low, high = row["surface"]["interval"]
        inside = None if result is None else low <= result <= high
        rows.append({**row, "result": result, "inside": inside})
    return rows
