"""What all figures share: one color per variant, legends beside the data, and files that are
complete or absent."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from mixit_titan.files import replace_file

COLORS = {
    "standard": "#1f77b4",
    "frozen_qk": "#2ca02c",
    "frozen_mlp": "#9467bd",
    "mixit": "#ff7f0e",
    "random": "#7f7f7f",
}
OTHER = "#999999"
"""The color of everything that is not one of the five variants."""
OTHERS = ("#17becf", "#d62728", "#8c564b", "#e377c2", "#bcbd22")
"""Colors of several such things, all different from those of the variants."""


def color_of(name: str, n: int) -> str:
    """The color of a variant, or for any other name the one at place `n` of OTHERS."""
    return COLORS.get(name) or OTHERS[n % len(OTHERS)]


def legend_below(
    figure: FigureBase, axes: Axes, *, columns: int = 5, title: str | None = None
) -> None:
    """Draw the legend of a panel below all panels, where it hides no data. The figure must have the
    constrained layout."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(
            handles, labels, loc="outside lower center", ncols=min(columns, len(handles)),
            title=title, frameon=False, fontsize=9,
        )  # fmt: skip


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure atomically, in the format of the path's suffix."""
    kind = path.suffix[1:]
    replace_file(path, lambda part: figure.savefig(part, format=kind, dpi=150, bbox_inches="tight"))
