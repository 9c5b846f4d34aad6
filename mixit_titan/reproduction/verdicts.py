"""How a claim is decided: by the means of our results, and by how often it is right when the seeds
of every result are resampled.

| verdict | the means | the resamples |
|---|---|---|
| holds | right | at least 97.5% right |
| holds weakly | right | fewer; or a single seed, which cannot be resampled |
| undecided | not right | at least 2.5% right; or a single seed |
| does not hold | not right | fewer than 2.5% right |
| not run | a result is missing | |

A claim is right if what it says is true and all levels that it requires are met. Each result is
resampled independently.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from mixit_titan.reproduction.claims import Claim, Figures, Missing
from mixit_titan.reproduction.measured import RESAMPLES, Measured, interval_of
from mixit_titan.reproduction.units import Unit

HOLDS, WEAKLY, UNDECIDED, FAILS = "holds", "holds weakly", "undecided", "does not hold"
NOT_RUN = "not run"
VERDICTS = (HOLDS, WEAKLY, UNDECIDED, FAILS, NOT_RUN)
MOST, LEAST = 0.975, 0.025

Ours = Mapping[str, Mapping[str, Measured | None]]
"""Row -> column -> result; None: not measured yet."""


def judge(
    claims: Iterable[Claim], paper: Figures, ours: Ours, units: Mapping[str, Unit]
) -> list[dict[str, Any]]:
    """The claims of an exhibit with their verdicts, as in report.json. `units` has the unit of each
    column, and "all" for the others."""
    again = resampled(ours, units)
    return [_judge(claim, paper, means_of(ours), again) for claim in claims]


def verdict_of(right: bool, share: float | None) -> str:
    """The verdict. `share` is the share of resamples that are right; None if there are none."""
    if right:
        return HOLDS if share is not None and share >= MOST else WEAKLY
    return FAILS if share is not None and share < LEAST else UNDECIDED


def _judge(claim: Claim, paper: Figures, means: Figures, again: list[Figures]) -> dict[str, Any]:
    effect = claim.effect
    said: dict[str, Any] = {
        "id": claim.id,
        "says": claim.says,
        "needs": [level.says for level in claim.needs],
        "paper": claim.in_paper or claim.shows(paper),
    }
    of_paper = None if claim.in_paper else effect.of(paper)
    shown = {"name": effect.name, "ratio": effect.ratio, "paper": of_paper}
    nothing = {"effect": {**shown, "ours": None, "interval": None}, "share": None}
    try:
        right = claim.right(means)
        unmet = [level.says for level in claim.needs if not level.met(means)]
    except Missing:
        return said | {"ours": NOT_RUN, "unmet": [], "verdict": NOT_RUN} | nothing
    said |= {"ours": claim.shows(means), "unmet": unmet}
    shown["ours"] = effect.of(means)
    try:
        share = float(np.mean([claim.is_right(figures) for figures in again]))
        interval = interval_of(np.array([effect.of(figures) for figures in again]))
    except Missing:
        share = interval = None
    verdict = verdict_of(right and not unmet, share)
    return said | {"verdict": verdict, "share": share, "effect": {**shown, "interval": interval}}


def means_of(ours: Ours) -> Figures:
    """The mean of every result; None for those not measured yet."""
    return {
        row: {column: found.mean if found else None for column, found in columns.items()}
        for row, columns in ours.items()
    }


def resampled(ours: Ours, units: Mapping[str, Unit]) -> list[Figures]:
    """All results, resampled RESAMPLES times; None for those with a single seed."""
    again: dict[tuple[str, str], np.ndarray | None] = {}
    for row, columns in ours.items():
        for column, found in columns.items():
            unit = units.get(column) or units["all"]
            again[row, column] = found and found.resampled(unit, cell_name(row, column))

    def at(n: int, means: np.ndarray | None) -> float | None:
        return None if means is None else float(means[n])

    return [
        {row: {c: at(n, again[row, c]) for c in columns} for row, columns in ours.items()}
        for n in range(RESAMPLES)
    ]


def cell_name(row: str, column: str) -> str:
    """The name that makes a result's resamples the same for its interval and for all claims."""
    return f"{row}/{column}"
