"""How a claim is decided: by the means of our figures, and by how often it is right when the seeds
of every figure are resampled.

| verdict | the means | the resamples |
|---|---|---|
| holds | right | at least 97.5% right |
| holds weakly | right | fewer; or one seed only, which cannot be resampled |
| undecided | not right | at least 2.5% right; or one seed only |
| does not hold | not right | fewer than 2.5% right |
| not run | a figure is missing | |

Right is: what the claim says, and the levels that it needs. Each figure is resampled by itself.
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
"""Row -> column -> figure; None: it is to be measured, and is not there yet."""


def judge(
    claims: Iterable[Claim], paper: Figures, ours: Ours, units: Mapping[str, Unit]
) -> list[dict[str, Any]]:
    """The claims of an exhibit as they are in report.json. `units` is that of each column, or of
    all under "all"."""
    again = resampled(ours, units)
    return [_judge(claim, paper, means_of(ours), again) for claim in claims]


def verdict_of(right: bool, share: float | None) -> str:
    """`share` of the resamples that are right; None: there are none."""
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
    return {
        row: {column: found.mean if found else None for column, found in columns.items()}
        for row, columns in ours.items()
    }


def resampled(ours: Ours, units: Mapping[str, Unit]) -> list[Figures]:
    """All figures, as often as they are resampled; those of one seed are missing."""
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
    """By which a figure is always resampled alike: for its interval, and for all claims."""
    return f"{row}/{column}"
