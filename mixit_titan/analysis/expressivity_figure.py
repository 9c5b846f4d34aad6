"""expressivity.png: error over the number of heads, with one panel per target."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from mixit_titan.plotting import COLORS, legend_below, save_figure

_LAYERS = {
    "frozen_qk": (COLORS["frozen_qk"], "frozen queries and keys"),
    "trained": (COLORS["standard"], "trained queries and keys"),
    "mixit": (COLORS["mixit"], "MixiT"),
}


def draw_expressivity(found: dict[str, Any], path: Path) -> None:
    """Draw the mean over seeds of every kind of layer, with the range of the seeds shaded."""
    targets = list(dict.fromkeys(row["target"] for row in found["rows"]))
    figure = Figure(figsize=(5 * len(targets), 4.2), layout="constrained")
    for axes, target in zip(
        figure.subplots(1, len(targets), squeeze=False)[0], targets, strict=True
    ):
        rows = [row for row in found["rows"] if row["target"] == target]
        for layer, (color, label) in _LAYERS.items():
            line = [row for row in rows if row["layer"] == layer]
            heads = [row["heads"] for row in line]
            axes.plot(heads, [row["mean"] for row in line], "o-", color=color, label=label)
            lowest, highest = ([f(row["errors"]) for row in line] for f in (min, max))
            axes.fill_between(heads, lowest, highest, color=color, alpha=0.25)
        linear = next(row["mean"] for row in rows if row["layer"] == "linear")
        axes.axhline(linear, color="black", linestyle=":", label="best causal linear map")
        axes.set(xscale="log", yscale="log", xlabel="heads", title=f"target: {target}")
        axes.set_xticks(heads, [str(count) for count in heads])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("error (share of variance)")
    legend_below(figure, figure.axes[0])
    title = "Theorem 5.1: one layer fits a fixed causal function; error on unseen sequences"
    figure.suptitle(title, fontsize=11)
    save_figure(figure, path)
