"""What the figures show."""

from pathlib import Path

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from mixit_titan.plotting import COLORS
from mixit_titan.reproduction.exhibit import Shown
from mixit_titan.reproduction.exhibits import EXHIBITS
from mixit_titan.reproduction.figures import draw_lines
from mixit_titan.reproduction.induction import VARIANTS
from mixit_titan.reproduction.measured import Measured


def test_lines_at_the_same_places_are_all_seen(tmp_path: Path) -> None:
    half = {pairs: Measured({"0": 0.5, "1": 0.5}) for pairs in ("2", "6", "10")}
    draw_lines(
        Shown(EXHIBITS["figure2"], {}, dict.fromkeys(VARIANTS, half)),
        tmp_path / "a.png",
        linear=True,
    )
    pixels = imread(tmp_path / "a.png")[:, :, :3]
    middle = pixels[len(pixels) // 4 :]  # below the legend
    for variant in VARIANTS:
        near = np.abs(middle - to_rgb(COLORS[variant])).max(-1) < 0.05
        assert near.any(0).mean() > 0.5, variant  # over most of the width
