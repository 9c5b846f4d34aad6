"""The tables on the screen and in compare.md: losses at equal budgets, what each group has spent,
and where curves cross."""

from mixit_titan.comparison.curve import BUDGETS, Axis
from mixit_titan.comparison.groups import Figure, Group
from mixit_titan.comparison.report import LOSSES, NAMES, Comparison

Table = tuple[str, list[str], list[list[str]]]
"""Title, header, rows."""
_EQUAL = ["equal tokens", "equal FLOPs", "equal seconds"]


def tables(comparison: Comparison) -> list[Table]:
    """The tables that have any rows."""
    found = [_at_equal(comparison), _spent(comparison), _crossings(comparison)]
    return [table for table in found if table[2]]


def _at_equal(comparison: Comparison) -> Table:
    name, unit = LOSSES[comparison.loss]
    title = f"{name.capitalize()} ({unit}) at equal budgets; * marks the lowest"
    budgets = [_budget(comparison, axis) for axis in BUDGETS]
    accuracy = any(group.accuracy for group in comparison.groups)
    header = ["", "runs", *_EQUAL, "final", *(["accuracy"] if accuracy else [])]
    rows = [["common budget", "", *budgets, "", *([""] if accuracy else [])]]
    for group in comparison.groups:
        cells = [_cell(comparison, group, axis) for axis in BUDGETS]
        row = [group.name, str(len(group.runs)), *cells, shown(group.final)]
        if accuracy:
            row.append(shown(group.accuracy) if group.accuracy else "-")
        rows.append(row)
    best = [comparison.best(axis) for axis in BUDGETS]
    rows.append(
        ["best", "", *(group.name if group else "-" for group in best), *([""] * (len(header) - 5))]
    )
    return title, header, rows


def _budget(comparison: Comparison, axis: Axis) -> str:
    return f"{amount(comparison.budget(axis))} {NAMES[axis]}"


def _cell(comparison: Comparison, group: Group, axis: Axis) -> str:
    found = group.at(axis, comparison.budget(axis))
    if found is None:
        return "-"
    return f"{shown(found)} *" if group is comparison.best(axis) else shown(found)


def _spent(comparison: Comparison) -> Table:
    rows = [
        [
            group.name,
            amount(group.end("steps")),
            amount(group.end("tokens")),
            "-" if group.bytes is None else amount(group.bytes),
            *(amount(group.end(axis)) for axis in ("flops", "seconds")),
            f"{group.runs[0].trained_params:,}",
        ]
        for group in comparison.groups
    ]
    header = ["", "steps", "tokens", "bytes", "FLOPs", "seconds", "trained parameters"]
    return "What each group has spent", header, rows


def _crossings(comparison: Comparison) -> Table:
    """The last crossing of each pair: noise adds earlier ones."""
    last = {(x.first.name, x.second.name, x.axis): x for x in comparison.crossings}
    pairs: dict[tuple[str, str], dict[Axis, str]] = {}
    for crossing in last.values():
        cell = f"{amount(crossing.at)} ({crossing.loss:.3f})"
        pairs.setdefault((crossing.lower.name, crossing.higher.name), {})[crossing.axis] = cell
    rows = [[*pair, *(at.get(axis, "-") for axis in BUDGETS)] for pair, at in pairs.items()]
    title = "Last crossing of each pair of curves (loss in parentheses)"
    return title, ["lower afterwards", "higher afterwards", *NAMES.values()], rows


def shown(figure: Figure) -> str:
    """`1.937`, or with several seeds `1.937 ± 0.016`, half the width of the 95% interval."""
    if figure.interval is None:
        return f"{figure.mean:.3f}"
    low, high = figure.interval
    return f"{figure.mean:.3f} ± {(high - low) / 2:.3f}"


def amount(value: float) -> str:
    """An amount with as many digits as are worth reading: `20,480`, `1.23e+11`, `4.5`."""
    if value >= 1e8:
        return f"{value:.2e}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
