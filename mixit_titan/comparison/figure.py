"""One figure of a comparison: validation loss over tokens, FLOPs and seconds of training."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from mixit_titan.comparison.curve import BUDGETS
from mixit_titan.comparison.groups import Group
from mixit_titan.comparison.report import NAMES, UNITS, Comparison
from mixit_titan.plotting import COLORS, OTHER, save_figure


def draw(comparison: Comparison, path: Path) -> None:
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    panels = figure.subplots(1, len(BUDGETS), sharey=True)
    for axes, axis in zip(panels, BUDGETS, strict=True):
        for n, group in enumerate(comparison.groups):
            _curve(axes, axis, group, n)
        axes.axvline(comparison.budget(axis), color=OTHER, linestyle=":", linewidth=1)
        axes.set_xlabel(NAMES[axis])
        axes.grid(alpha=0.3)
    panels[0].set_ylabel(f"validation loss ({UNITS[comparison.loss]})")
    panels[0].set_ylim(*_range(comparison))
    panels[-1].legend()
    figure.suptitle("Dotted: as much as all of them have spent")
    save_figure(figure, path)


def _curve(axes: object, axis: str, group: Group, n: int) -> None:
    """The mean in bold, each seed in pale. Groups of one variant have its color and other lines."""
    color = COLORS.get(group.runs[0].variant, f"C{n}")
    style = "-" if group.name == group.runs[0].variant else ("--", "-.", ":")[n % 3]
    if len(group.curves) > 1:
        for curve in group.curves:
            axes.plot(curve.at[axis], curve.loss, color=color, alpha=0.25, linewidth=0.8)
    mean = group.mean
    axes.plot(mean.at[axis], mean.loss, style, color=color, label=group.name, marker=".")


def _range(comparison: Comparison) -> tuple[float, float]:
    """Without the first points, which are at the level of chance and hide all else."""
    losses = np.concatenate([group.mean.loss[1:] for group in comparison.groups])
    if not len(losses):
        losses = np.concatenate([group.mean.loss for group in comparison.groups])
    low, high = losses.min(), losses.max()
    room = 0.05 * (high - low) or 0.1
    return low - room, high + room
