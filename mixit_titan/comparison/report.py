"""What a comparison found: compare.json, and the tables of the screen and of compare.md."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mixit_titan.comparison.curve import BUDGETS, Axis, Loss, crossings
from mixit_titan.comparison.groups import Figure, Group

UNITS = {"validation_loss": "nats per token", "bits_per_byte": "bits per byte"}
NAMES = {"tokens": "tokens", "flops": "FLOPs", "seconds": "seconds of training"}
HEADER = (
    *("group", "runs", "final loss", "tokens", "FLOPs", "seconds", "trained"),
    *("at equal tokens", "at equal FLOPs", "at equal seconds"),
)


@dataclass(frozen=True)
class Comparison:
    loss: Loss
    groups: Sequence[Group]
    left_out: dict[str, str]
    """Folder -> why it has no part in it."""

    @property
    def baseline(self) -> Group:
        """What the others are compared with: standard, or what was named first."""
        standard = [group for group in self.groups if group.runs[0].variant == "standard"]
        return (standard or self.groups)[0]

    def budget(self, axis: Axis) -> float:
        """As much as all groups have spent."""
        return min(group.end(axis) for group in self.groups)

    def best(self, axis: Axis) -> Group:
        """The group of the lowest loss at the common budget."""
        budget = self.budget(axis)
        there = [group for group in self.groups if group.at(axis, budget)] or self.groups
        return min(there, key=lambda group: (group.at(axis, budget) or group.final).mean)


def reaches(group: Group, base: Group) -> dict[str, float]:
    """The lowest loss that both come to, and the share of the baseline's budget that the group
    needs for it."""
    ours, theirs = group.mean, base.mean
    target = max(ours.loss.min(), theirs.loss.min())
    found = {"loss": float(target)}
    for axis in BUDGETS:
        needed, spent = ours.budget_for(axis, target), theirs.budget_for(axis, target)
        if needed is not None and spent:
            found[axis] = needed / spent
    return found


def as_json(comparison: Comparison) -> dict[str, Any]:
    base, groups = comparison.baseline, comparison.groups
    return {
        "loss": comparison.loss,
        "unit": UNITS[comparison.loss],
        "baseline": base.name,
        "budgets": {axis: comparison.budget(axis) for axis in BUDGETS},
        "best": {axis: comparison.best(axis).name for axis in BUDGETS},
        "groups": [_group(comparison, group) for group in groups],
        "crossings": [
            {"groups": [a.name, b.name], "axis": axis, "at": at, "loss": loss}
            for n, a in enumerate(groups)
            for b in groups[n + 1 :]
            for axis in BUDGETS
            for at, loss in crossings(a.mean, b.mean, axis)
        ],
        "left_out": [{"folder": folder, "why": why} for folder, why in comparison.left_out.items()],
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
        "loss_at_equal": {axis: found and _figure(found) for axis, found in at_equal.items()},
        "reaches": None if group is base else reaches(group, base),
        **{axis: group.end(axis) for axis in BUDGETS},
        "bytes": run.bytes_per_token and group.end("tokens") * run.bytes_per_token,
        "flops_per_token": run.flops_per_token,
        "trained_params": run.trained_params,
        "curve": {
            **{axis: x.tolist() for axis, x in curve.at.items()},
            "loss": curve.loss.tolist(),
        },
    }


def _figure(found: Figure) -> dict[str, Any]:
    return {"mean": found.mean, "interval": found.interval, "values": found.values}


def rows(comparison: Comparison) -> list[list[str]]:
    """A row per group. The lowest loss of a column has a star."""
    table = []
    for group in comparison.groups:
        at_equal = []
        for axis in BUDGETS:
            found = group.at(axis, comparison.budget(axis))
            star = " *" if group is comparison.best(axis) else ""
            at_equal.append(f"{shown(found)}{star}" if found else "-")
        spent = [f"{group.end('tokens'):,.0f}", f"{group.end('flops'):.2e}"]
        spent += [f"{group.end('seconds'):,.0f}", f"{group.runs[0].trained_params:,}"]
        table.append([group.name, str(len(group.runs)), shown(group.final), *spent, *at_equal])
    return table


def shown(figure: Figure) -> str:
    """`1.937`, or with several seeds `1.937 (1.921 to 1.953)`."""
    if figure.interval is None:
        return f"{figure.mean:.3f}"
    low, high = figure.interval
    return f"{figure.mean:.3f} ({low:.3f} to {high:.3f})"


def sentences(comparison: Comparison) -> list[str]:
    """What the table comes to, in words."""
    said = []
    for axis in BUDGETS:
        best = comparison.best(axis)
        budget = f"{comparison.budget(axis):.3g} {NAMES[axis]}"
        said.append(f"At equal {NAMES[axis]} ({budget}), {best.name} has the lowest loss.")
    base = comparison.baseline
    for group in comparison.groups:
        found = reaches(group, base)
        if group is not base and "flops" in found and "seconds" in found:
            said.append(
                f"{group.name} reaches {found['loss']:.3f} with {found['flops']:.2f} of "
                f"{base.name}'s FLOPs and {found['seconds']:.2f} of its time."
            )
    said += [
        f"{run.folder} is compared as far as it came: it {run.state} {run.failure}"
        for group in comparison.groups
        for run in group.runs
        if run.failure
    ]
    said += [
        f"Goodput of {run.folder}: {run.goodput}"
        for group in comparison.groups
        for run in group.runs
        if run.goodput
    ]
    said += _tokenizers(comparison)
    if any(len(group.runs) == 1 for group in comparison.groups):
        said.append("Groups of one run have no interval: a second seed would give one.")
    return said + _caution(comparison)


def _tokenizers(comparison: Comparison) -> list[str]:
    """As many tokens of one tokenizer are not as much text as those of another."""
    sizes = [(group.name, group.runs[0].bytes_per_token) for group in comparison.groups]
    if comparison.loss != "bits_per_byte" or not all(size for _, size in sizes):
        return []
    each = ", ".join(f"{size:.2f} bytes of {name}" for name, size in sizes)
    return [
        f"The tokenizers differ, and a token is {each}: equal tokens are not equal text, neither "
        "in training nor in validation."
    ]


def _caution(comparison: Comparison) -> list[str]:
    """A curve that is read in the middle of its schedule is above what a shorter run comes to."""
    cut = [
        group.name
        for group in comparison.groups
        if any(comparison.budget(axis) < 0.99 * group.end(axis) for axis in BUDGETS)
    ]
    if not cut:
        return []
    return [
        "Read before their last step, where the learning rate had not come to its end: "
        f"{', '.join(cut)}."
    ]
