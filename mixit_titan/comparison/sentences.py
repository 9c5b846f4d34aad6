"""What a reader of the tables has to know beside them, in words."""

from mixit_titan.comparison.curve import BUDGETS
from mixit_titan.comparison.groups import Group
from mixit_titan.comparison.report import Comparison, reaches

_STEEP = 0.05
"""The share of its loss that a curve may fall by between two validations, to be read there."""


def sentences(comparison: Comparison) -> list[str]:
    base = comparison.baseline
    said = [_reaches(group, base) for group in comparison.groups if group is not base]
    said += [
        f"{run.folder} is compared as far as it came: it {run.state} {run.failure}"
        for group in comparison.groups
        for run in group.runs
        if run.failure
    ]
    said += [_unfinished(comparison), _tokenizers(comparison)]
    said.append("Seconds are by the clock: whatever else the machine did is in them.")
    if any(len(group.runs) == 1 for group in comparison.groups):
        said.append("Groups of one run have no interval: a second seed would give one.")
    said += [_sparse(comparison), _caution(comparison)]
    said += [
        f"Goodput of {run.folder}: {run.goodput}"
        for group in comparison.groups
        for run in group.runs
        if run.goodput
    ]
    return [sentence for sentence in said if sentence]


def _reaches(group: Group, base: Group) -> str:
    found = reaches(group, base)
    if not {*BUDGETS} <= found.keys():
        return ""
    return (
        f"{group.name} reaches {found['loss']:.3f} with {found['tokens']:.2f} of {base.name}'s "
        f"tokens, {found['flops']:.2f} of its FLOPs and {found['seconds']:.2f} of its time."
    )


def _unfinished(comparison: Comparison) -> str:
    found = [
        f"{run.folder} (step {run.lines[-1]['step']:,})"
        for group in comparison.groups
        for run in group.runs
        if run.state in ("starting", "running", "stopped")
    ]
    return f"Not finished, and compared as far as it has come: {', '.join(found)}." if found else ""


def _tokenizers(comparison: Comparison) -> str:
    """As many tokens of one tokenizer are not as much text as those of another."""
    sizes = [(group.name, group.runs[0].bytes_per_token) for group in comparison.groups]
    if comparison.loss != "bits_per_byte" or not all(size for _, size in sizes):
        return ""
    each = ", ".join(f"{size:.2f} bytes of {name}" for name, size in sizes)
    return (
        f"The tokenizers differ, and a token is {each}: equal tokens are not equal text, neither "
        "in training nor in validation."
    )


def _sparse(comparison: Comparison) -> str:
    """A straight line is above a loss that falls ever more slowly."""
    names = [
        group.name
        for group in comparison.groups
        if any(
            curve.fall_around(axis, comparison.budget(axis)) > _STEEP
            for curve in group.curves
            for axis in BUDGETS
        )
    ]
    if not names:
        return ""
    return (
        "Read on a straight line between two validations that are far apart, so that the loss is "
        f"too high there: {', '.join(names)}. Validations more often would tell."
    )


def _caution(comparison: Comparison) -> str:
    """A curve that is read in the middle of its schedule is above what a shorter run comes to."""
    cut = [
        group.name
        for group in comparison.groups
        if any(comparison.budget(axis) < 0.99 * group.end(axis) for axis in BUDGETS)
    ]
    if not cut:
        return ""
    return (
        "Read before their last step, where the learning rate had not come to its end: "
        f"{', '.join(cut)}."
    )
