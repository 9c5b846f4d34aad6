"""Bar charts and line charts of our results, with the paper's."""

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mixit_titan.plotting import color_of, save_figure
from mixit_titan.reproduction.exhibit import Shown
from mixit_titan.reproduction.units import Unit
from mixit_titan.reproduction.verdicts import cell_name

Chance = Sequence[tuple[str, Callable[[int], float]]]
"""Chance levels: a name, and the accuracy of guessing at each column."""

_ONE_POINT = {"linestyle": "", "marker": "D", "markersize": 8, "fillstyle": "none"}
"""The style of a single value of the paper, which no line would show."""


def draw_bars(shown: Shown, path: Path) -> str | None:
    """Draw a group of bars for each column with the unit of our first results; black lines mark the
    paper's values in this unit. Returns the alternative text; None as long as nothing is measured.
    """
    exhibit = shown.exhibit
    unit = _measured_unit(shown)
    if unit is None:
        return None
    columns = [column for column in shown.columns if exhibit.unit(column) is unit]
    figure = Figure(figsize=(6.4, 3.4))
    axes = figure.subplots()
    width = 0.8 / len(shown.rows)
    for n, row in enumerate(shown.rows):
        for group, column in enumerate(columns):
            middle = group + (n - (len(shown.rows) - 1) / 2) * width
            ours = shown.ours.get(row, {}).get(column)
            if ours is not None:
                axes.bar(middle, unit.factor * ours.mean, 0.9 * width, color=color_of(row, n))
                draw_interval(axes, middle, shown, row, column)
            paper = exhibit.paper.get(row, {}).get(column)
            if paper is not None:
                height, half = unit.factor * paper, width / 2
                axes.hlines(height, middle - half, middle + half, "black", linewidth=2)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.grid(axis="y", alpha=0.3)
    compared = any(column in row for row in exhibit.paper.values() for column in columns)
    line = Line2D([], [], color="black", linewidth=2, label="paper")
    _finish(axes, shown, unit, [line] if compared else [])
    save_figure(figure, path)
    return f"Bar chart of {unit.label}. {in_words(shown, columns)}"


def draw_lines(
    shown: Shown, path: Path, *, linear: bool = False, chance: Chance = ()
) -> str | None:
    """Draw a line for each row over the columns, which are numbers; dashed: the paper's; dotted:
    chance levels. Where the paper has a single value, it is a diamond. Each line is thinner than
    the one it may cover, so that both stay visible. Returns the alternative text; None as long as
    nothing is measured."""
    exhibit = shown.exhibit
    unit = _measured_unit(shown)
    if unit is None:
        return None
    figure = Figure(figsize=(6.4, 3.4))
    axes = figure.subplots()
    for n, row in enumerate(shown.rows):
        color = color_of(row, n)
        ours = {int(c): found for c, found in shown.ours.get(row, {}).items() if found is not None}
        means = [unit.factor * found.mean for found in ours.values()]
        above = len(shown.rows) - 1 - n
        axes.plot(
            [*ours], means, "o-", color=color, linewidth=1.5 + 2 * above, markersize=6 + 3 * above
        )
        for place in ours:
            draw_interval(axes, place, shown, row, str(place), color)
        paper = {int(column): unit.factor * x for column, x in exhibit.paper.get(row, {}).items()}
        style = _ONE_POINT if len(paper) == 1 else {"linestyle": "--", "alpha": 0.7}
        axes.plot([*paper], [*paper.values()], color=color, **style)
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
    styles = [
        _ONE_POINT if len(row) == 1 else {"linestyle": "--"} for row in exhibit.paper.values()
    ]
    of_paper = [Line2D([], [], color="gray", label="paper", **style) for style in styles[:1]]
    _finish(axes, shown, unit, [*of_paper, *guesses])
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


def _measured_unit(shown: Shown) -> Unit | None:
    """The unit of the first column that has a result of ours which is not only counted."""
    for column in shown.columns:
        found = [row[column] for row in shown.ours.values() if row.get(column)]
        if any(not each.exact for each in found):
            return shown.exhibit.unit(column)
    return None


def _finish(axes: Axes, shown: Shown, unit: Unit, of_paper: list[Line2D]) -> None:
    axes.set_ylabel(unit.label)
    if unit.factor == 100:
        axes.set_ylim(0, 105)
    if unit.logarithmic:
        axes.set_yscale("log")
    names = [
        Line2D([], [], color=color_of(row, n), linewidth=6, label=row)
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
