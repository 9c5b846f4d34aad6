"""The colors that all figures share, and legends beside the data."""

from matplotlib.figure import Figure

from mixit_titan.plotting import COLORS, OTHER, OTHERS, color_of, legend_below


def test_no_other_color_is_that_of_a_variant() -> None:
    taken = {OTHER, *OTHERS}
    assert not taken & {*COLORS.values()} and len(taken) == 1 + len(OTHERS)


def test_a_variant_has_its_color_at_any_place() -> None:
    for n in range(7):
        assert {color_of(name, n) for name in COLORS} == {*COLORS.values()}
        assert color_of("attention,mixing", n) in OTHERS


def test_the_legend_is_below_all_panels() -> None:
    figure = Figure(layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot([0, 1], [0, 1], label="standard")
    right.plot([0, 1], [1, 0])
    left.set_xlabel("step")
    legend_below(figure, left)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["standard"]
    for axes in (left, right):
        assert legend.get_window_extent().y1 <= axes.get_tightbbox().y0
