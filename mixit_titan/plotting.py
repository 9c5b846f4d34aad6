"""What all pictures share: a colour for each variant, and files that are whole or not there."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib.figure import Figure

COLORS = {
    "standard": "#1f77b4",
    "frozen_qk": "#2ca02c",
    "frozen_mlp": "#9467bd",
    "mixit": "#ff7f0e",
    "random": "#7f7f7f",
}


def save_figure(figure: Figure, path: Path) -> None:
    part = path.with_name(f".{path.name}.part")
    figure.savefig(part, format=path.suffix[1:], dpi=150, bbox_inches="tight")
    part.replace(path)
