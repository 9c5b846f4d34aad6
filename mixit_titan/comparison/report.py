"""The result of a comparison, and compare.json."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mixit_titan.comparison.curve import BUDGETS, Axis, Loss, crossings
from mixit_titan.comparison.groups import Figure, Group

LOSSES = {
    "validation_loss": ("validation loss", "nats per token"),
    "bits_per_byte": ("validation loss", "bits per byte"),
    "test_loss": ("test loss", "nats per answer"),
}
"""The name of each kind of loss, and its unit."""
NAMES: dict[Axis, str] = {"tokens": "tokens", "flops": "FLOPs", "seconds": "seconds"}


@dataclass(frozen=True)
class Crossing:
    """A point where the mean curves of two groups cross."""

    first: Group
    second: Group
    axis: Axis
    at: float
    loss: float
    lower: Group
    """The group with the lower loss from there on."""

    @property
    def higher(self) -> Group:
        """The group with the higher loss from there on."""
        return self.second if self.lower is self.first else self.first


@dataclass(frozen=True)
class Comparison:
    """Groups of runs that can be compared, and the runs that cannot."""

    loss: Loss
    groups: Sequence[Group]
    left_out: dict[str, str]
    """Folder -> why it is left out."""

    @property
    def baseline(self) -> Group:
        """The group that the others are compared with: `standard`, the best of several, or else the
        first one named."""
        standard = [group for group in self.groups if group.runs[0].variant == "standard"]
        return min(standard, key=lambda group: group.final.mean, default=self.groups[0])

    @property
    def crossings(self) -> list[Crossing]:
        """All crossings between the mean curves of any two groups."""
        return [
            Crossing(a, b, axis, at, loss, lower=a if falls_below else b)
            for n, a in enumerate(self.groups)
            for b in self.groups[n + 1 :]
            for axis in BUDGETS
            for at, loss, falls_below in crossings(a.mean, b.mean, axis)
        ]

    def budget(self, axis: Axis) -> float:
        """The largest budget that all groups have spent."""
        return min(group.end(axis) for group in self.groups)

    def best(self, axis: Axis) -> Group | None:
        """The group with the lowest loss at the common budget; None if fewer than two have one."""
        found = {group.name: group.at(axis, self.budget(axis)) for group in self.groups}
        there = [group for group in self.groups if found[group.name]]
        if len(there) < min(2, len(self.groups)):
            return None
        return min(there, key=lambda group: found[group.name].mean)

    def rivals(self, axis: Axis) -> list[Group]:
        """The groups whose intervals overlap with that of the best at the common budget: which of
        them is better is undecided."""
        best = self.best(axis)
        if best is None:
            return []
        others = [group for group in self.groups if group is not best]
        found = {group.name: group.at(axis, self.budget(axis)) for group in (best, *others)}
        ours = found[best.name].interval
        return [
            group
            for group in others
            if ours
            and (theirs := found[group.name])
            and theirs.interval
            and theirs.interval[0] <= ours[1]
        ]


def reaches(group: Group, base: Group) -> dict[str, float]:
    """The lowest loss that both groups reach, and the budget that `group` needs for it as a
    multiple of the budget that `base` needs."""
    ours, theirs = group.mean, base.mean
    target = max(ours.loss.min(), theirs.loss.min())
    found = {"loss": float(target)}
    for axis in BUDGETS:
        needed, spent = ours.budget_for(axis, target), theirs.budget_for(axis, target)
        if needed is not None and spent:
            found[axis] = needed / spent
    return found


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The content of compare.json."""
    base, groups = comparison.baseline, comparison.groups
    bests = {axis: comparison.best(axis) for axis in BUDGETS}
    return {
        "loss": comparison.loss,
        "unit": LOSSES[comparison.loss][1],
        "baseline": base.name,
        "budgets": {axis: comparison.budget(axis) for axis in BUDGETS},
        "best": {axis: best and best.name for axis, best in bests.items()},
        "groups": [_group(comparison, group) for group in groups],
        "crossings": [_crossing(crossing) for crossing in comparison.crossings],
        "left_out": [{"folder": folder, "why": why} for folder, why in comparison.left_out.items()],
    }


def _crossing(crossing: Crossing) -> dict[str, Any]:
    return {
        "groups": [crossing.first.name, crossing.second.name],
        "axis": crossing.axis,
        "at": crossing.at,
        "loss": crossing.loss,
        "lower_after": crossing.lower.name,
    }


def _group(comparison: Comparison, group: Group) -> dict[str, Any]:
    run, curve, base = group.runs[0], group.mean, comparison.baseline
    at_equal = {axis: group.at(axis, comparison.budget(axis)) for axis in BUDGETS}
    return {
        "name": group.name,
        "variant": run.variant,
        "runs": [str(each.folder) for each in group.runs],
        "states": [each.state for each in group.runs],
        "seeds": [list(each.seeds) for each in group.runs],
        "goodput": [each.goodput and each.goodput.as_json() for each in group.runs],
        "loss": _figure(group.final),
        "accuracy": group.accuracy and _figure(group.accuracy),
        "loss_at_equal": {axis: found and _figure(found) for axis, found in at_equal.items()},
        "reaches": None if group is base else reaches(group, base),
        **{axis: group.end(axis) for axis in BUDGETS},
        "bytes": group.bytes,
        "flops_per_token": run.flops_per_token,
        "trained_params": run.trained_params,
        "curve": {
            **{axis: x.tolist() for axis, x in curve.at.items()},
            "loss": curve.loss.tolist(),
        },
    }


def _figure(found: Figure) -> dict[str, Any]:
    return {"mean": found.mean, "interval": found.interval, "values": found.values}
