"""Runs that differ in their seeds only are one group: a name, a mean curve, an interval."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mixit_titan.comparison.curve import AXES, Axis, Curve, Loss
from mixit_titan.comparison.runs import TrainingRun
from mixit_titan.intervals import mean_interval


@dataclass(frozen=True)
class Figure:
    """A figure of a group."""

    values: list[float]
    """One per seed."""

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def interval(self) -> tuple[float, float] | None:
        return mean_interval(self.values)


@dataclass(frozen=True)
class Group:
    name: str
    runs: Sequence[TrainingRun]
    curves: Sequence[Curve]
    """One per run."""

    @property
    def mean(self) -> Curve:
        """Over the seeds, at every step at which all of them were validated."""
        steps = sorted(set.intersection(*({*curve.at["steps"]} for curve in self.curves)))
        rows = [np.searchsorted(curve.at["steps"], steps) for curve in self.curves]
        found = list(zip(self.curves, rows, strict=True))
        return Curve(
            at={axis: np.mean([c.at[axis][row] for c, row in found], axis=0) for axis in AXES},
            loss=np.mean([c.loss[row] for c, row in found], axis=0),
        )

    def end(self, axis: Axis) -> float:
        """As far as all of its runs have come."""
        return min(curve.end(axis) for curve in self.curves)

    @property
    def final(self) -> Figure:
        return Figure([float(curve.loss[-1]) for curve in self.curves])

    @property
    def accuracy(self) -> Figure | None:
        """Of runs of tasks."""
        found = [run.accuracy for run in self.runs if run.accuracy is not None]
        return Figure(found) if found else None

    @property
    def bytes(self) -> float | None:
        """Of text that was trained on, as far as all of its runs have come; None: not known."""
        size = self.runs[0].bytes_per_token
        return None if size is None else self.end("tokens") * size

    def at(self, axis: Axis, budget: float) -> Figure | None:
        found = [curve.loss_at(axis, budget) for curve in self.curves]
        return Figure(found) if all(each is not None for each in found) else None


def group_runs(runs: Sequence[TrainingRun], loss: Loss) -> list[Group]:
    """In the order of the runs. A group is named by its variant, and by the settings in which it
    differs from the other groups of that variant."""
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
        others = [each for each in first if each.variant == run.variant and each is not run]
        differing = [
            key
            for key, value in run.settings.items()
            if any(each.settings.get(key) != value for each in others)
        ]
        own = [f"{key.rpartition('.')[2]} {run.settings[key]}" for key in differing]
        names.append(", ".join([run.variant, *own]))
    return names
