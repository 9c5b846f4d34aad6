"""The sentences below the tables: results in words, and what limits the comparison."""

from collections.abc import Callable

from mixit_titan.comparison.curve import BUDGETS, Axis
from mixit_titan.comparison.groups import Group
from mixit_titan.comparison.report import NAMES, Comparison, reaches

_STEEP = 0.05
"""The relative drop in loss between two validations above which interpolating is inaccurate."""


def sentences(comparison: Comparison) -> list[str]:
    """The sentences that apply, in the order in which they are printed."""
    base = comparison.baseline
    said = [_reaches(group, base) for group in comparison.groups if group is not base]
    said += [
        f"{run.folder} is compared up to where it ended: it {run.state} {run.failure}"
        for group in comparison.groups
        for run in group.runs
        if run.failure
    ]
    said += [_unfinished(comparison), _tokenizers(comparison)]
    said.append("Seconds are wall-clock time, so other work on the machine counts in them.")
    if any(len(group.runs) == 1 for group in comparison.groups):
        said.append("A group of one run has no interval; a second seed would give one.")
    said += [_undecided(comparison, axis) for axis in BUDGETS]
    said += [_unknown(comparison), _sparse(comparison), _caution(comparison)]
    said += [
        f"Goodput of {run.folder}: {run.goodput}"
        for group in comparison.groups
        for run in group.runs
        if run.goodput and run.goodput.restarts
    ]
    return [sentence for sentence in said if sentence]


def _reaches(group: Group, base: Group) -> str:
    found = reaches(group, base)
    if not {*BUDGETS} <= found.keys():
        return ""
    return (
        f"{group.name} reaches a loss of {found['loss']:.3f} with {found['tokens']:.2f} times "
        f"{base.name}'s tokens, {found['flops']:.2f} times its FLOPs and {found['seconds']:.2f} "
        "times its training time."
    )


def _unfinished(comparison: Comparison) -> str:
    found = [
        f"{run.folder} (step {run.lines[-1]['step']:,})"
        for group in comparison.groups
        for run in group.runs
        if run.state in ("starting", "running", "stopped")
    ]
    return f"Unfinished, and compared up to the latest step: {', '.join(found)}." if found else ""


def _tokenizers(comparison: Comparison) -> str:
    """A note that equal tokens of different tokenizers are not equal amounts of text."""
    sizes = [(group.name, group.runs[0].bytes_per_token) for group in comparison.groups]
    if comparison.loss != "bits_per_byte" or not all(size for _, size in sizes):
        return ""
    each = ", ".join(f"{size:.2f} bytes of {name}" for name, size in sizes)
    return (
        f"The tokenizers differ, and a token is {each}: equal tokens are not equal amounts of "
        "text, neither in training nor in validation."
    )


def _undecided(comparison: Comparison, axis: Axis) -> str:
    rivals = comparison.rivals(axis)
    if not rivals:
        return ""
    names = "; ".join(group.name for group in rivals)
    return (
        f"Undecided at equal {NAMES[axis]}: the interval of {comparison.best(axis).name} overlaps "
        f"with that of {names}."
    )


def _unknown(comparison: Comparison) -> str:
    """A note on groups whose first validation is after a budget."""
    names = _where(comparison, lambda group, axis, budget: group.at(axis, budget) is None)
    if not names:
        return ""
    return (
        f"Not known where there is a dash, before the first validation: {names}. Validate more "
        "often (validator.freq)."
    )


def _sparse(comparison: Comparison) -> str:
    """A note on sparse validations: linear interpolation overestimates a convex loss curve."""
    names = _where(
        comparison,
        lambda group, axis, budget: any(
            curve.fall_around(axis, budget) > _STEEP for curve in group.curves
        ),
    )
    if not names:
        return ""
    return (
        f"Interpolated between two distant validations, which overestimates the loss: {names}. "
        "Validate more often (validator.freq) for exact values."
    )


def _caution(comparison: Comparison) -> str:
    """A note on unfinished schedules: a shorter run with its own decay would reach a lower loss."""
    names = _where(
        comparison,
        lambda group, axis, budget: (
            budget < 0.99 * group.end(axis) and group.at(axis, budget) is not None
        ),
    )
    if not names:
        return ""
    return f"Compared before their last step, while the learning rate was still decaying: {names}."


def _where(comparison: Comparison, holds: Callable[[Group, Axis, float], bool]) -> str:
    """The names of the groups for which something holds at one of the common budgets."""
    return "; ".join(
        group.name
        for group in comparison.groups
        if any(holds(group, axis, comparison.budget(axis)) for axis in BUDGETS)
    )
