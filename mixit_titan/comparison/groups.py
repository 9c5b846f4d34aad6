"""Groups of runs that differ only in their seeds: a name, a mean curve, an interval."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mixit_titan.comparison.curve import AXES, Axis, Curve, Loss
from mixit_titan.comparison.runs import TrainingRun
from mixit_titan.intervals import mean_interval


@dataclass(frozen=True)
class Figure:
    """A measured value of a group."""

    values: list[float]
    """One per seed."""

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return statistics.fmean(self.values)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval of the mean; None for a single seed."""
        return mean_interval(self.values)


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seeds."""

    name: str
    runs: Sequence[TrainingRun]
    curves: Sequence[Curve]
    """One per run."""

    @property
    def mean(self) -> Curve:
        """The mean over the seeds, at the steps where all of them were validated."""
        steps = sorted(set.intersection(*({*curve.at["steps"]} for curve in self.curves)))
        rows = [np.searchsorted(curve.at["steps"], steps) for curve in self.curves]
        found = list(zip(self.curves, rows, strict=True))
        return Curve(
            at={axis: np.mean([c.at[axis][row] for c, row in found], axis=0) for axis in AXES},
            loss=np.mean([c.loss[row] for c, row in found], axis=0),
        )

    def end(self, axis: Axis) -> float:
        """How far all of its runs have come."""
        return min(curve.end(axis) for curve in self.curves)

    @property
    def final(self) -> Figure:
        """The loss of each run at its last validation."""
        return Figure([float(curve.loss[-1]) for curve in self.curves])

    @property
    def accuracy(self) -> Figure | None:
        """The test accuracy, for runs of a task."""
        found = [run.accuracy for run in self.runs if run.accuracy is not None]
        return Figure(found) if found else None

    @property
    def bytes(self) -> float | None:
        """The bytes of text that all of its runs have trained on; None if unknown."""
        size = self.runs[0].bytes_per_token
        return None if size is None else self.end("tokens") * size

    def at(self, axis: Axis, budget: float) -> Figure | None:
        """The loss at a budget; None if it is beyond the curve of any run."""
        found = [curve.loss_at(axis, budget) for curve in self.curves]
        return Figure(found) if all(each is not None for each in found) else None


def group_runs(runs: Sequence[TrainingRun], loss: Loss) -> list[Group]:
    """Group runs by their settings, in the order in which they come. A group is named after its
    variant, and after the settings in which it differs from other groups of that variant."""
    members: dict[str, list[TrainingRun]] = {}
    for run in runs:
        members.setdefault(repr(sorted(run.settings.items(), key=str)), []).append(run)
    groups = list(members.values())
    names = _names([group[0] for group in groups])
    return [
        Group(name, group, [run.curve(loss) for run in group])
        for name, group in zip(names, groups, strict=True)
    ]


def _names(first: Sequence[TrainingRun]) -> list[str]:
    names = []
    for run in first:
        alike = [each for each in first if each.variant == run.variant]
        own = [f"{key.rpartition('.')[2]} {run.settings.get(key)}" for key in _telling(alike)]
        names.append(", ".join([run.variant, *own]))
    return names


def _telling(alike: Sequence[TrainingRun]) -> list[str]:
    """The fewest settings that tell these runs apart, chosen one by one."""
    keys = list(dict.fromkeys(key for run in alike for key in run.settings))
    chosen: list[str] = []

    def apart(keys: Sequence[str]) -> int:
        return len({repr([run.settings.get(key) for key in keys]) for run in alike})

    while apart(chosen) < len(alike):
        best = max(keys, key=lambda key: apart([*chosen, key]))
        if apart([*chosen, best]) == apart(chosen):
            return chosen
        chosen.append(best)
    return chosen
