"""sde.png: convergence of the layers to their SDE, one entry of Phi, and rank collapse."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mixit_titan.plotting import COLORS, OTHER, OTHERS, save_figure

_COLORS = {"theorem": OTHERS[1], "causal": COLORS["mixit"], "skip": OTHERS[0]}
_MIXERS = {
    "identity": (OTHER, "W_V alone"),
    "mixit": (COLORS["mixit"], "MixiT"),
    "softmax": (COLORS["random"], "random softmax attention"),
    "uniform": ("black", "uniform attention"),
}


def draw_sde(found: dict[str, Any], path: Path) -> None:
    """Draw three panels: distance from the SDE, the variance of the last entry, effective rank."""
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    differences, entries, ranks = figure.subplots(1, 3)
    for recursion in found["recursions"]:
        _draw_differences(differences, recursion)
        _draw_entry(entries, recursion)
    differences.set(xscale="log", yscale="log", ylabel="relative distance from the SDE")
    differences.set_title("lines: exact (dashed: means)\npoints: simulated, with sampling error")
    last = found["tokens"]
    entries.set(xscale="log", ylabel=f"variance of $\\Phi_{{{last}{last}}}$")
    entries.set_title("points: simulated, 2 standard errors\ndotted: exact; solid: SDE")
    widths = [row["width"] for row in found["recursions"][0]["rows"]]
    for axes in (differences, entries):
        axes.set_xticks(widths, [str(width) for width in widths])
        axes.minorticks_off()
        axes.set_xlabel(f"width (depth = {found['ratio']:g} width)")
        _legend(axes)
    _draw_collapse(ranks, found["collapse"])
    for axes in figure.axes:
        axes.grid(alpha=0.3)
        axes.title.set_fontsize(9)
    figure.suptitle("Theorem 2.1: the covariance of tokens in random layers, and its SDE")
    save_figure(figure, path)


def _draw_differences(axes: Axes, recursion: dict[str, Any]) -> None:
    rows, color = recursion["rows"], _COLORS[recursion["recursion"]]
    widths = [row["width"] for row in rows]
    for what, line in (("covariance", "-"), ("mean", "--")):
        axes.plot(widths, [row[f"{what}_difference_exact"] for row in rows], line, color=color)
    label = f"{recursion['recursion']}, slope {recursion['slopes']['covariance'] or 0:.2f}"
    axes.errorbar(
        widths,
        [row["covariance_difference"] for row in rows],
        [row["covariance_error"] for row in rows],
        fmt="o",
        color=color,
        capsize=2,
        label=label,
    )


def _draw_entry(axes: Axes, recursion: dict[str, Any]) -> None:
    rows, color = recursion["rows"], _COLORS[recursion["recursion"]]
    widths = [row["width"] for row in rows]
    axes.plot(widths, [row["variance_exact"][-1][-1] for row in rows], ":", color=color)
    axes.errorbar(
        widths,
        [row["variance"][-1][-1] for row in rows],
        [2 * row["variance_error"][-1][-1] for row in rows],
        fmt="o",
        color=color,
        capsize=2,
        label=recursion["recursion"],
    )
    axes.axhline(recursion["limit"]["variance"][-1][-1], color=color, linewidth=1)


def _draw_collapse(axes: Axes, collapse: dict[str, Any]) -> None:
    """Draw over layer / width, where a mixer that has a limit gives one curve for all widths."""
    rows = collapse["rows"]
    widths = sorted({row["width"] for row in rows})
    for mixer, (color, label) in _MIXERS.items():
        for n, width in enumerate(widths):
            line = [row for row in rows if (row["mixer"], row["width"]) == (mixer, width)]
            axes.plot(
                [row["layer"] / width for row in line],
                [row["effective_rank"] for row in line],
                color=color,
                alpha=0.25 + 0.75 * (n + 1) / len(widths),
                linestyle=":" if mixer == "identity" else "-",
                label=label if n == len(widths) - 1 else None,
            )
    axes.set_xlabel("layer / width")
    axes.set_ylabel(f"effective rank of {collapse['tokens']} tokens")
    axes.set_title("darker: wider")
    _legend(axes)


def _legend(axes: Axes) -> None:
    """Draw the legend below the panel, where it hides no data."""
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.17), frameon=False, ncols=2)
