"""compare.png: the loss over steps, tokens, bytes, FLOPs, seconds and trained parameters."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mixit_titan.comparison.curve import AXES, BUDGETS, Axis, crossings
from mixit_titan.comparison.groups import Group
from mixit_titan.comparison.report import LOSSES, Comparison
from mixit_titan.plotting import OTHER, color_of, legend_below, save_figure

_LABELS = {"steps": "steps", "tokens": "tokens", "flops": "FLOPs", "seconds": "seconds of training"}


def draw(comparison: Comparison, path: Path) -> None:
    """Draw the six panels, with crossings of the baseline marked."""
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    above, below = figure.subplots(2, 3, sharey=True)
    for axes, axis in zip([*above[:2], *below[:2]], AXES, strict=True):
        _over(axes, comparison, axis)
    _over_bytes(above[2], comparison)
    _over_parameters(below[2], comparison)
    for axes in (*above, *below):
        axes.grid(alpha=0.3)
    for row in (above, below):
        row[0].set_ylabel("{} ({})".format(*LOSSES[comparison.loss]))
        row[0].set_ylim(*_range(comparison))
    legend_below(figure, above[0])
    figure.suptitle("Dotted: the largest common budget. x: crossings with the baseline")
    save_figure(figure, path)


def _over(axes: Axes, comparison: Comparison, axis: Axis) -> None:
    for n, group in enumerate(comparison.groups):
        _curve(axes, group, n, [curve.at[axis] for curve in group.curves], group.mean.at[axis])
        if group is not comparison.baseline:
            for at, loss, _ in crossings(group.mean, comparison.baseline.mean, axis):
                axes.plot(at, loss, "x", color="black", zorder=3)
    if axis in BUDGETS:
        axes.axvline(comparison.budget(axis), color=OTHER, linestyle=":", linewidth=1)
    axes.set_xlabel(_LABELS[axis])


def _over_bytes(axes: Axes, comparison: Comparison) -> None:
    """Draw the groups whose training text is known in bytes."""
    for n, group in enumerate(comparison.groups):
        size = group.runs[0].bytes_per_token
        if size is not None:
            own = [size * curve.at["tokens"] for curve in group.curves]
            _curve(axes, group, n, own, size * group.mean.at["tokens"])
    known = any(group.bytes is not None for group in comparison.groups)
    axes.set_xlabel("bytes of text" if known else "bytes of text (unknown: the shards are gone)")


def _over_parameters(axes: Axes, comparison: Comparison) -> None:
    """Draw the loss at equal tokens, with its interval, over trained parameters."""
    for n, group in enumerate(comparison.groups):
        found = group.at("tokens", comparison.budget("tokens"))
        if found is None:
            continue
        low, high = found.interval or (found.mean, found.mean)
        errors = [[found.mean - low], [high - found.mean]]
        x = group.runs[0].trained_params
        axes.errorbar(x, found.mean, errors, marker="o", capsize=3, color=_color(group, n))
    axes.set_xlabel("trained parameters (loss at equal tokens)")


def _curve(axes: Axes, group: Group, n: int, each: list[np.ndarray], mean: np.ndarray) -> None:
    """Draw the mean in bold and each seed pale. Groups of one variant share its color and differ in
    line style."""
    color = _color(group, n)
    style = "-" if group.name == group.runs[0].variant else ("--", "-.", ":")[n % 3]
    if len(each) > 1:
        for x, curve in zip(each, group.curves, strict=True):
            axes.plot(x, curve.loss, color=color, alpha=0.25, linewidth=0.8)
    axes.plot(mean, group.mean.loss, style, color=color, label=group.name, marker=".")


def _color(group: Group, n: int) -> str:
    return color_of(group.runs[0].variant, n)


def _range(comparison: Comparison) -> tuple[float, float]:
    """The range of losses without the first points, whose losses at initialization would hide all
    others."""
    losses = np.concatenate([group.mean.loss[1:] for group in comparison.groups])
    if not len(losses):
        losses = np.concatenate([group.mean.loss for group in comparison.groups])
    low, high = losses.min(), losses.max()
    room = 0.05 * (high - low) or 0.1
    return low - room, high + room
