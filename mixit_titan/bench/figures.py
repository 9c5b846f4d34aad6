"""bench.png: bars for one point, or lines for a scan, each with the FLOP ratio."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mixit_titan.bench.report import title
from mixit_titan.plotting import color_of, legend_below, save_figure


def draw_point(found: dict[str, Any], path: Path) -> None:
    """Draw the speeds and ratios of one point as bars."""
    rows = found["variants"]
    names = [row["variant"] for row in rows]
    colors = [color_of(name, n) for n, name in enumerate(names)]
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    speeds = [row["tokens_per_s"] for row in rows]
    left.bar(names, speeds, color=colors, yerr=_whiskers(rows, "tokens_per_s", "_quartiles"))
    left.set_ylabel("tokens/s (median, quartiles)")
    ratios = [row["ratio"] for row in rows]
    right.bar(names, ratios, color=colors, yerr=_whiskers(rows, "ratio", "_interval"))
    flops = [row["limit"] for row in rows]
    places = range(len(rows))
    right.hlines(flops, [x - 0.45 for x in places], [x + 0.45 for x in places], color="black")
    right.set_ylabel("ratio to standard; line: FLOP ratio")
    for axes in (left, right):
        axes.tick_params(axis="x", rotation=30)
        axes.grid(axis="y", alpha=0.3)
    figure.suptitle(title(found["settings"]), fontsize=9)
    save_figure(figure, path)


def _whiskers(rows: list[dict[str, Any]], key: str, interval: str) -> list[list[float]]:
    below = [max(0.0, row[key] - row[key + interval][0]) for row in rows]
    above = [max(0.0, row[key + interval][1] - row[key]) for row in rows]
    return [below, above]


def draw_scan(lines: dict[str, list[dict[str, Any]]], axis: str, path: Path) -> None:
    """Draw a scan as lines; `lines` maps a label for the settings other than `axis` to the points
    along it."""
    figure = Figure(figsize=(9, 4 * len(lines)), layout="constrained")
    grid = figure.subplots(len(lines), 2, squeeze=False)
    for (label, points), (left, right) in zip(lines.items(), grid, strict=True):
        for n, row in enumerate(points[0]["variants"]):
            _line(points, row["variant"], n, axis, left, right)
        left.set_ylabel("tokens/s")
        right.set_ylabel("ratio to standard; dashed: FLOP ratio")
        for axes in (left, right):
            axes.set_xlabel(axis.replace("_", " "))
            axes.grid(alpha=0.3)
            axes.set_title(label, fontsize=9)
    legend_below(figure, figure.axes[0])
    save_figure(figure, path)


def _line(
    points: list[dict[str, Any]], variant: str, n: int, axis: str, left: Axes, right: Axes
) -> None:
    rows = [row for point in points for row in point["variants"] if row["variant"] == variant]
    places = [axis_value(point["settings"], axis) for point in points]
    color = color_of(variant, n)
    left.plot(places, [row["tokens_per_s"] for row in rows], "o-", color=color, label=variant)
    right.plot(places, [row["ratio"] for row in rows], "o-", color=color)
    right.plot(places, [row["limit"] for row in rows], "--", color=color)
    if all(isinstance(place, int) for place in places):
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            axes.set_xticks(places, [str(place) for place in places])


def axis_value(settings: dict[str, Any], axis: str) -> int | str:
    """Return the value that a point has along an axis of a scan."""
    value = settings[axis] if axis in settings else settings["shape"][axis]
    return ("on" if value else "off") if isinstance(value, bool) else value
