"""Results of stacks over the number of their attention layers, with one marker per stack."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mixit_titan.plotting import COLORS, save_figure
from mixit_titan.reproduction.exhibit import Shown
from mixit_titan.reproduction.figures import draw_interval, in_words

_MARKERS = "ov<>^sDXPhdo"
_BETWEEN = "#444444"
"""The color of stacks that are neither all-mixing nor all-attention."""
_APART = 0.13
"""The distance between stacks with equally many attention layers, so that all are visible."""


def draw_stacks(shown: Shown, path: Path, *, layers: int) -> str:
    """Draw one panel per column but the first, which is the share of `layers` that attend. Returns
    the alternative text."""
    share, *columns = shown.columns
    places = _places([round(layers * shown.figures[row][share]) for row in shown.rows])
    markers = dict(zip(shown.rows, _MARKERS, strict=False))
    drawn = Figure(figsize=(10.5, 3.6))
    panels = drawn.subplots(1, len(columns), squeeze=False)[0]
    for axes, column in zip(panels, columns, strict=True):
        for row, place in zip(shown.rows, places, strict=True):
            _draw_point(axes, shown, row, column, place, markers[row])
        axes.set_xticks(range(layers + 1))
        _finish(axes, shown, column)
    handles = [
        Line2D([], [], linestyle="", marker=marker, color=_color(row), label=row)
        for row, marker in markers.items()
    ]
    drawn.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=4, frameon=False
    )
    drawn.tight_layout()
    save_figure(drawn, path)
    return f"Panels over the number of attention layers. {in_words(shown, columns)}"


def _places(counts: list[int]) -> list[float]:
    """The x positions, with stacks of equally many attention layers side by side."""
    found = []
    for n, count in enumerate(counts):
        middle = (counts.count(count) - 1) / 2
        found.append(count + _APART * (counts[:n].count(count) - middle))
    return found


def _draw_point(axes: Axes, shown: Shown, row: str, column: str, place: float, marker: str) -> None:
    ours = shown.ours[row].get(column)
    if ours is not None:
        draw_interval(axes, place, shown, row, column, _color(row))
        height = shown.exhibit.unit(column).factor * ours.mean
        axes.plot(place, height, marker, color=_color(row), markersize=7)


def _finish(axes: Axes, shown: Shown, column: str) -> None:
    unit = shown.exhibit.unit(column)
    axes.set_title(column)
    axes.set_xlabel("attention layers")
    axes.set_ylabel(unit.label)
    if unit.factor == 100:
        axes.set_ylim(0, 105)
    axes.grid(alpha=0.3)


def _color(row: str) -> str:
    return COLORS.get(row, _BETWEEN)
