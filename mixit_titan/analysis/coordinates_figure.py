"""coordinates.png: activation sizes over width and depth, and loss over learning rate."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mixit_titan.plotting import COLORS, OTHER, save_figure

_STYLES = {"mup": "--", "official": ":"}


def draw_coordinates(found: dict[str, Any], path: Path) -> None:
    """Draw the coordinate check above, and below it the learning rate sweep of each family."""
    sweep = found["rates"]["families"]
    figure = Figure(figsize=(15, 8), layout="constrained")
    above, below = figure.subfigures(2, 1)
    panels = above.subplots(1, 4)
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
    panels[0].legend(fontsize=7)
    lower = below.subplots(1, len(sweep), sharey=True, squeeze=False)[0]
    for axes, family in zip(lower, sweep, strict=True):
        for n, row in enumerate(family["rows"]):
            color = str(0.7 * (1 - n / max(1, len(family["rows"]) - 1)))
            axes.plot(found["rates"]["rates"], row["losses"], ".-", color=color, label=row["width"])
            axes.plot(row["rate"], row["loss"], "o", color=color, fillstyle="none")
        axes.set(xscale="log", xlabel="learning rate", title=family["family"])
        axes.grid(alpha=0.3)
    lower[0].set_ylabel(f"loss after {found['rates']['steps']} steps")
    lower[0].legend(title="width", fontsize=7)
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
    change = f"change in {what} after {sizes['steps']} steps"
    title = change if size.endswith("moved") else f"{what} at initialization"
    axes.set(xscale="log", yscale="log", xlabel=over, ylabel="RMS", title=title)
    axes.title.set_fontsize(10)
    axes.set_xticks(sized, [str(size) for size in sized])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
