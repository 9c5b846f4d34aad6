"""What all figures share: one color per variant, and files that are complete or absent."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib.figure import Figure

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


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure atomically, in the format of the path's suffix."""
    kind = path.suffix[1:]
    replace_file(path, lambda part: figure.savefig(part, format=kind, dpi=150, bbox_inches="tight"))
