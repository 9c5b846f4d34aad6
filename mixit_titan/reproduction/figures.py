"""Bar charts and line charts of our results, with the paper's."""

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mixit_titan.plotting import COLORS, save_figure
from mixit_titan.reproduction.exhibit import Shown
from mixit_titan.reproduction.verdicts import cell_name

Chance = Sequence[tuple[str, Callable[[int], float]]]
"""Chance levels: a name, and the accuracy of guessing at each column."""

_OTHERS = ("#17becf", "#d62728", "#8c564b")
"""For rows that are not variants."""


def draw_bars(shown: Shown, path: Path) -> str:
    """Draw a group of bars for each column with the unit of the first one; black lines mark the
    paper's values. Returns the alternative text."""
    exhibit = shown.exhibit
    unit = exhibit.unit(shown.columns[0])
    columns = [column for column in shown.columns if exhibit.unit(column) is unit]
    figure = Figure(figsize=(6.4, 3.4))
    axes = figure.subplots()
    width = 0.8 / len(shown.rows)
    for n, row in enumerate(shown.rows):
        for group, column in enumerate(columns):
            middle = group + (n - (len(shown.rows) - 1) / 2) * width
            ours = shown.ours.get(row, {}).get(column)
            if ours is not None:
                axes.bar(middle, unit.factor * ours.mean, 0.9 * width, color=_color(n, row))
                draw_interval(axes, middle, shown, row, column)
            paper = exhibit.paper.get(row, {}).get(column)
            if paper is not None:
                place = unit.factor * paper
                axes.hlines(place, middle - width / 2, middle + width / 2, "black", linewidth=2)
    axes.set_xticks(range(len(columns)), columns)
    axes.grid(axis="y", alpha=0.3)
    _finish(axes, shown, [Line2D([], [], color="black", linewidth=2, label="paper")])
    save_figure(figure, path)
    return f"Bar chart of {unit.label}. {in_words(shown, columns)}"


def draw_lines(shown: Shown, path: Path, *, linear: bool = False, chance: Chance = ()) -> str:
    """Draw a line for each row over the columns, which are numbers; dashed: the paper's; dotted:
    chance levels. Each line is thinner than the one it may cover, so that both stay visible.
    Returns the alternative text."""
    exhibit = shown.exhibit
    unit = exhibit.unit(shown.columns[0])
    figure = Figure(figsize=(6.4, 3.4))
    axes = figure.subplots()
    for n, row in enumerate(shown.rows):
        color = _color(n, row)
        ours = {int(c): found for c, found in shown.ours.get(row, {}).items() if found is not None}
        means = [unit.factor * found.mean for found in ours.values()]
        above = len(shown.rows) - 1 - n
        axes.plot(
            [*ours], means, "o-", color=color, linewidth=1.5 + 2 * above, markersize=6 + 3 * above
        )
        for place in ours:
            draw_interval(axes, place, shown, row, str(place), color)
        paper = exhibit.paper.get(row, {})
        axes.plot(
            [int(column) for column in paper],
            [unit.factor * x for x in paper.values()],
            "--",
            color=color,
            alpha=0.7,
        )
    places = [int(column) for column in shown.columns]
    guesses = []
    for shade, (name, guess) in zip(("#000000", "#888888"), chance, strict=False):
        levels = [unit.factor * guess(place) for place in places]
        guesses += axes.plot(places, levels, ":", color=shade, linewidth=1.5, label=name)
    if not linear:
        axes.set_xscale("log", base=2)
    axes.set_xticks(places, shown.columns)
    axes.minorticks_off()
    axes.set_xlabel(exhibit.column)
    axes.grid(alpha=0.3)
    dashed = Line2D([], [], color="gray", linestyle="--", label="paper")
    _finish(axes, shown, [*([dashed] if exhibit.paper else []), *guesses])
    save_figure(figure, path)
    return f"Line chart of {unit.label} over {exhibit.column}. {in_words(shown, shown.columns)}"


def draw_interval(
    axes: Axes, place: float, shown: Shown, row: str, column: str, color: str = "#333333"
) -> None:
    """Draw the 95% interval of one result, if it has one."""
    unit, ours = shown.exhibit.unit(column), shown.ours[row][column]
    interval = ours and not ours.exact and ours.interval(unit, cell_name(row, column))
    if interval:
        low, high = (unit.factor * end for end in interval)
        axes.errorbar(
            place, (low + high) / 2, (high - low) / 2, color=color, elinewidth=1.2, capsize=3
        )


def _color(n: int, row: str) -> str:
    return COLORS.get(row) or _OTHERS[n % len(_OTHERS)]


def _finish(axes: Axes, shown: Shown, of_paper: list[Line2D]) -> None:
    unit = shown.exhibit.unit(shown.columns[0])
    axes.set_ylabel(unit.label)
    if unit.factor == 100:
        axes.set_ylim(0, 105)
    if unit.logarithmic:
        axes.set_yscale("log")
    names = [
        Line2D([], [], color=_color(n, row), linewidth=6, label=row)
        for n, row in enumerate(shown.rows)
    ]
    axes.legend(
        handles=[*names, *of_paper], loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4,
        frameon=False,
    )  # fmt: skip


def in_words(shown: Shown, columns: list[str]) -> str:
    """Our results as sentences, for the alternative text of a figure."""
    said = []
    for row in shown.rows:
        ours = shown.ours.get(row, {})
        values = [
            f"{column} {shown.exhibit.unit(column).show(found.mean)}"
            for column in columns
            if (found := ours.get(column)) is not None
        ]
        if values:
            said.append(f"{row}: {', '.join(values)}.")
    return " ".join(said)
