"""covariance.png, subspace.png and spectrum.png."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mixit_titan.plotting import COLORS, OTHER, legend_below, save_figure

_KINDS = {"mixit": COLORS["mixit"], "softmax": COLORS["random"]}
_LABELS = {"mixit": "MixiT at initialization", "softmax": "softmax attention at initialization"}


def draw_covariance(found: dict[str, Any], *, title: str, path: Path) -> None:
    """Draw untrained models over depth and, if its rows are given, the run's model as stars."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    for axes, key in zip(figure.subplots(1, 2), ("covariance", "cosine"), strict=True):
        for variant in ("random", "mixit"):
            _depth_line(axes, found["rows"], variant, key)
        _own_points(axes, found["rows"], key)
        axes.set_ylabel(f"mean {key} of two tokens")
        _depth_axis(axes, sorted({row["layers"] for row in found["rows"]}))
    if min(row["covariance"] for row in found["rows"]) > 0:
        figure.axes[0].set_yscale("log")
    else:
        figure.axes[0].set_yscale("symlog", linthresh=1e-4)
    legend_below(figure, figure.axes[1])
    figure.suptitle(f"Do tokens become more similar with depth? {title}", fontsize=11)
    save_figure(figure, path)


def _depth_line(axes: Axes, rows: list[dict[str, Any]], variant: str, key: str) -> None:
    line = sorted(
        (row["layers"], row[key])
        for row in rows
        if row["variant"] == variant and not row["trained"]
    )
    label = {"random": _LABELS["softmax"], "mixit": _LABELS["mixit"]}[variant]
    axes.plot(*zip(*line, strict=True), "o-", color=COLORS[variant], label=label)


def _own_points(axes: Axes, rows: list[dict[str, Any]], key: str) -> None:
    own = next((row for row in rows if row["trained"]), None)
    if own is None:
        return
    start = next(row for row in rows if row["variant"] == own["variant"] and not row["trained"])
    color = COLORS.get(own["variant"], OTHER)
    places, values = [own["layers"]] * 2, [start[key], own[key]]
    axes.plot(places, values, ":", color=color)
    name = own["variant"]
    begun = {"mfc": "white", "mew": 2, "ms": 9, "label": f"{name} of this run at initialization"}
    axes.plot(places[:1], values[:1], "o", color=color, **begun)
    axes.plot(places[1:], values[1:], "*", ms=15, color=color, label=f"{name}, trained")


def draw_subspace(found: dict[str, Any], *, variant: str, title: str, path: Path) -> None:
    """Draw the share of variance in the top principal directions and neurons, after each layer."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes, color = figure.subplots(), COLORS.get(variant, OTHER)
    layers = [row["layer"] for row in found["rows"]]
    for key, style, what in (
        ("principal", "o-", "principal directions"),
        ("neurons", "s--", "neurons"),
    ):
        values = [100 * row[key] for row in found["rows"]]
        axes.plot(layers, values, style, color=color, label=f"top {found['top']} {what}")
    axes.axhline(
        min(100.0, 100 * found["top"] / found["width"]),
        color="black",
        linestyle=":",
        linewidth=1,
        label=f"{found['top']} of {found['width']} neurons, uniform baseline",
    )
    axes.set_xticks(layers, ["embedding", *map(str, layers[1:])])
    axes.set_xlabel("after layer")
    axes.set_ylabel("share of the variance (%)")
    axes.set_ylim(0, 103)
    axes.grid(alpha=0.3)
    legend_below(figure, axes, columns=2)
    axes.set_title(f"How low-dimensional are the hidden states? {title}", fontsize=11)
    save_figure(figure, path)


def draw_spectrum(found: dict[str, Any], *, variant: str, title: str, path: Path) -> None:
    """Draw the effective rank over depth, and the singular values that it is computed from."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    kinds = dict.fromkeys(row["kind"] for row in found["rows"])
    for kind in kinds:
        rows = [row for row in found["rows"] if row["kind"] == kind]
        style = {"color": _KINDS.get(kind) or COLORS.get(variant, OTHER)}
        depths, ranks = [row["layers"] for row in rows], [row["effective_rank"] for row in rows]
        label = _LABELS.get(kind, f"{title}, trained")
        left.plot(depths, ranks, "o-" if kind in _KINDS else "*-", label=label, **style)
        for n, row in enumerate(rows):
            values = row["singular_values"]
            ratios = [value / values[0] for value in values]
            faint = 0.3 + 0.7 * (n + 1) / len(rows)
            right.plot(range(1, len(ratios) + 1), ratios, alpha=faint, **style)
    left.set_yscale("log")
    left.set_ylabel(f"effective rank (of {found['length']})")
    left.set_title("effective rank of the product", fontsize=9)
    legend_below(figure, left)
    _depth_axis(left, sorted({row["layers"] for row in found["rows"]}))
    right.set_yscale("log")
    right.set_ylim(1e-8, 2)
    right.set_xlabel("index of the singular value")
    right.set_ylabel("singular value / largest")
    right.xaxis.get_major_locator().set_params(integer=True)
    right.set_title("singular values of the product; darker: more layers", fontsize=9)
    right.grid(alpha=0.3)
    figure.suptitle("Rank collapse: the product of the mixing matrices of many layers", fontsize=11)
    save_figure(figure, path)


def _depth_axis(axes: Axes, depths: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(depths, [str(depth) for depth in depths])
    axes.minorticks_off()
    axes.set_xlabel("layers")
    axes.grid(alpha=0.3)
