"""What the figures show."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread

from mixit_titan.plotting import COLORS
from mixit_titan.reproduction import figures
from mixit_titan.reproduction.exhibit import Shown
from mixit_titan.reproduction.exhibits import EXHIBITS
from mixit_titan.reproduction.figures import draw_bars, draw_lines
from mixit_titan.reproduction.induction import VARIANTS
from mixit_titan.reproduction.language import SOURCES
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


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Axes]:
    """The panels of all figures that are saved."""
    found: list[Axes] = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, path: found.extend(_axes(figure)))
    return found


def _axes(figure: Figure) -> list[Axes]:
    return figure.axes


def _legend(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_table_2_at_cpu_scale_draws_our_bars_in_our_unit(drawn: list[Axes]) -> None:
    losses = dict(zip(EXHIBITS["table2"].paper, (2.0, 2.5, 3.0), strict=True))
    ours = {row: {SOURCES: Measured({"0": x, "1": x + 0.1})} for row, x in losses.items()}
    said = draw_bars(Shown(EXHIBITS["table2"], {}, ours), Path("unused.png"))
    (axes,) = drawn
    assert axes.get_ylabel() == "validation loss (bits per byte)"
    assert [label.get_text() for label in axes.get_xticklabels()] == [SOURCES]
    bars = {to_hex(bar.get_facecolor()): bar.get_height() for bar in axes.patches}
    assert bars == {COLORS[row]: pytest.approx(x + 0.05) for row, x in losses.items()}
    assert _legend(axes) == [*losses]  # nothing of the paper has this unit
    assert said == (
        "Bar chart of validation loss (bits per byte). standard: Python sources 2.050. "
        "frozen_qk: Python sources 2.550. mixit: Python sources 3.050."
    )


def test_table_2_at_paper_scale_is_drawn_beside_the_paper(drawn: list[Axes]) -> None:
    corpora = dict.fromkeys(("WikiText-103", "FineWeb-edu"), Measured({"0": 2.9}))
    ours = dict.fromkeys(EXHIBITS["table2"].paper, corpora)
    draw_bars(Shown(EXHIBITS["table2"], {}, ours), Path("unused.png"))
    (axes,) = drawn
    assert axes.get_ylabel() == "log perplexity (nats per token)"
    lines = [c for c in axes.collections if to_hex(c.get_color()[0]) == "#000000"]
    heights = sorted(line.get_segments()[0][0, 1] for line in lines)
    assert heights == sorted(x for row in EXHIBITS["table2"].paper.values() for x in row.values())
    assert _legend(axes)[-1] == "paper"


def test_single_values_of_the_paper_are_diamonds(drawn: list[Axes]) -> None:
    exhibit = EXHIBITS["table4_full"]
    epochs = {"2": Measured({"0": 0.1}), "16": Measured({"0": 0.3})}
    draw_lines(Shown(exhibit, {}, dict.fromkeys(exhibit.paper, epochs)), Path("unused.png"))
    (axes,) = drawn
    diamonds = {
        line.get_color(): (*line.get_xdata(), *line.get_ydata())
        for line in axes.lines
        if line.get_marker() == "D"
    }
    assert diamonds == {COLORS[row]: (1250, 100 * x["1250"]) for row, x in exhibit.paper.items()}
    assert axes.get_legend().legend_handles[-1].get_marker() == "D"


@pytest.mark.parametrize("name", ["table2", "table4_full", "table4"])
def test_nothing_is_drawn_before_a_result_is_complete(name: str, drawn: list[Axes]) -> None:
    exhibit = EXHIBITS[name]
    counted = {row: {"trained": Measured({"counted": 1.0}, exact=True)} for row in exhibit.paper}
    ours = counted if name == "table4" else {row: {"2": None} for row in exhibit.paper}
    assert exhibit.draw(Shown(exhibit, {}, ours), Path("unused.png")) is None
    assert not drawn
