"""ladder.png: loss over FLOPs, loss over size for each budget, and the gap over scale."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from mixit_titan.ladder.report import Ladder, compared
from mixit_titan.plotting import OTHER, color_of, legend_below, save_figure


def draw(ladder: Ladder, path: Path) -> None:
    """Draw the three panels for every stack that has runs."""
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for n, stack in enumerate(ladder.scale.stacks):
        color = color_of(stack, n)
        _over_flops(left, ladder, stack, color)
        _isoflop(middle, ladder, stack, color)
        _gap(right, ladder, stack, color)
    _forecast(left, ladder)
    right.axhline(0, color=OTHER, linewidth=1)
    if ladder.bigram is not None and ladder.points:
        left.axhline(ladder.bigram, color=OTHER, linestyle=":", label="bigram table")
    title = "All runs, and the fit of L(C)"
    left.set(xlabel="FLOPs", ylabel="validation loss (nats per token)", title=title)
    middle.set(xlabel="N, parameters of the layers", title="IsoFLOP: one line style per budget")
    middle.set_ylabel("validation loss (nats per token)")
    right.set(
        xlabel=f"FLOPs of {ladder.baseline}",
        ylabel="gap (nats per token)",
        title=f"Gap to {ladder.baseline} at equal tokens",
    )
    for axes in (left, middle, right):
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.grid(alpha=0.3)
        axes.title.set_fontsize(9)
    legend_below(figure, left)
    save_figure(figure, path)


def _over_flops(axes: Axes, ladder: Ladder, stack: str, color: str) -> None:
    points = [point for point in ladder.points if point.run.stack == stack]
    fit = ladder.fits[stack].curve
    axes.plot(
        [point.run.flops for point in points],
        [point.loss for point in points],
        ".",
        color=color,
        label=stack,
        alpha=0.7,
    )
    if fit:
        x = np.geomspace(
            min(point.run.flops for point in points), max(run.flops for run in ladder.runs)
        )
        axes.plot(x, fit.law.loss(x), color=color, linewidth=1)


def _isoflop(axes: Axes, ladder: Ladder, stack: str, color: str) -> None:
    for n, budget in enumerate(sorted(ladder.scale.budgets)):
        points = [p for p in ladder.points if p.run.stack == stack and p.run.budget == budget]
        points.sort(key=lambda point: point.run.params)
        sizes = [point.run.params for point in points]
        style = ("-", "--", "-.", ":")[n % 4]
        axes.plot(sizes, [p.loss for p in points], style, marker=".", color=color, linewidth=1)


def _gap(axes: Axes, ladder: Ladder, stack: str, color: str) -> None:
    gaps = ladder.gaps[stack].rungs if stack in ladder.gaps else ()
    if not gaps:
        return
    at = [gap.at for gap in gaps]
    axes.plot(at, [gap.fitted for gap in gaps], color=color)
    low, high = zip(*(gap.interval for gap in gaps), strict=True)
    axes.fill_between(at, low, high, color=color, alpha=0.15, linewidth=0)
    made = [gap for gap in gaps if gap.measured is not None]
    axes.plot([gap.at for gap in made], [gap.measured for gap in made], ".", color=color)


def _forecast(axes: Axes, ladder: Ladder) -> None:
    rows = compared(ladder)
    for n, row in enumerate(rows):
        low, high = row["surface"]["interval"]
        # Side by side, where all have about the same FLOPs.
        x = row["flops"] * 1.06 ** (n - len(rows) / 2)
        axes.plot([x, x], [low, high], color="black", linewidth=1)
        label = "frozen forecast" if n == 0 else None
        axes.plot(x, row["surface"]["loss"], "_", color="black", label=label)
