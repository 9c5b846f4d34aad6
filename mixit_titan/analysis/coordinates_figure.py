"""coordinates.png: activation sizes over width and depth, and loss over learning rate."""

import math
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mixit_titan.plotting import COLORS, OTHER, legend_below, save_figure

_COLUMNS = 4  # panels side by side
_STYLES = {"mup": "--", "official": ":"}


def draw_coordinates(found: dict[str, Any], path: Path) -> None:
    """Draw the coordinate check above, and below it the learning rate sweep of each family."""
    sweep = found["rates"]["families"]
    lines = math.ceil(len(sweep) / _COLUMNS)
    figure = Figure(figsize=(11, 3.2 + 2.6 * lines), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=[3.2, 2.6 * lines])
    panels = above.subplots(1, _COLUMNS)
    for axes, (over, size) in zip(
        panels,
        [
            ("width", "logits"),
            ("width", "logits_moved"),
            ("depth", "state"),
            ("depth", "logits_moved"),
        ],
        strict=True,
    ):
        _sizes(axes, found["sizes"], over, size)
    legend_below(above, panels[0], columns=4)
    lower = below.subplots(lines, _COLUMNS, sharex=True, sharey=True, squeeze=False)
    for axes in lower.flat[len(sweep) :]:
        axes.set_visible(False)
    for axes, family in zip(lower.flat, sweep, strict=False):
        for n, row in enumerate(family["rows"]):
            color = str(0.7 * (1 - n / max(1, len(family["rows"]) - 1)))
            axes.plot(found["rates"]["rates"], row["losses"], ".-", color=color, label=row["width"])
            axes.plot(row["rate"], row["loss"], "o", color=color, fillstyle="none")
        axes.set(xscale="log", title=family["family"])
        names = [f"{rate:g}" for rate in found["rates"]["rates"]]
        axes.set_xticks(found["rates"]["rates"], names, rotation=45, fontsize=8)
        axes.minorticks_off()
        axes.title.set_fontsize(9)
        axes.grid(alpha=0.3)
    below.supxlabel("learning rate", fontsize=10)
    below.supylabel(f"loss after {found['rates']['steps']} steps (nats per byte)", fontsize=10)
    legend_below(figure, lower[0, 0], title="width (circle: the best learning rate)")
    save_figure(figure, path)


def _sizes(axes: Axes, sizes: dict[str, Any], over: str, size: str) -> None:
    other = "depth" if over == "width" else "width"
    for family in sizes["families"]:
        variant, *words = family["family"].split()
        rows = [row for row in family["rows"] if row[other] == sizes[other]]
        style = next((_STYLES[word] for word in words if word in _STYLES), "-")
        color = COLORS.get(variant, OTHER)
        x, y = [row[over] for row in rows], [row[size] for row in rows]
        axes.plot(x, y, style, marker=".", color=color, label=family["family"])
    sized = sorted({row[over] for row in sizes["families"][0]["rows"]})
    what = {"state": "last hidden states", "logits": "logits"}[size.removesuffix("_moved")]
    change = f"change in {what}\nafter {sizes['steps']} steps"
    title = change if size.endswith("moved") else f"{what}\nat initialization"
    axes.set(xscale="log", yscale="log", xlabel=over, ylabel="RMS", title=title)
    axes.title.set_fontsize(9)
    axes.set_xticks(sized, [str(size) for size in sized])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
