from collections.abc import Callable
from pathlib import Path

import matplotlib.image
import pytest

from mixit_titan.ladder import figure
from mixit_titan.ladder.figure import draw


def test_the_figure_has_a_panel_for_each_question(
    ladder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the curves of two stacks and the bars of a frozen forecast."""
    monkeypatch.setattr(figure, "draw", draw)
    bars = []
    bar = figure._forecast
    monkeypatch.setattr(figure, "_forecast", lambda axes, ladder: bars.append(bar(axes, ladder)))
    out = ladder(forecast=True, stacks=("standard", "mixit"))
    height, width, _ = matplotlib.image.imread(out / "ladder.png").shape
    assert width > 3 * 0.9 * height and len(bars) == 2  # before and after it was frozen


def test_a_ladder_without_a_finished_run_is_drawn(
    ladder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure, "draw", draw)
    assert (ladder(report=True) / "ladder.png").exists()
