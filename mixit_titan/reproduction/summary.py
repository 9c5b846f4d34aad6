"""One figure of all claims: the effect size in the paper and ours."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mixit_titan.plotting import save_figure
from mixit_titan.reproduction.verdicts import FAILS, HOLDS, UNDECIDED, WEAKLY

_COLORS = {HOLDS: "#0a8a4d", WEAKLY: "#c98a00", UNDECIDED: "#c98a00", FAILS: "#c03030"}


def draw_summary(claims: list[dict[str, Any]], path: Path) -> str | None:
    """Draw differences in points above and ratios below. Returns the alternative text, or None if
    nothing has been run."""
    run = [claim for claim in claims if claim["effect"]["ours"] is not None]
    groups = [[c for c in run if c["effect"]["ratio"] is ratio] for ratio in (False, True)]
    groups = [group for group in groups if group]
    if not groups:
        return None
    sizes = [len(group) + 1.5 for group in groups]
    figure = Figure(figsize=(7.2, 0.27 * sum(sizes) + 0.6))
    all_axes = figure.subplots(len(groups), 1, squeeze=False, height_ratios=sizes)[:, 0]
    for axes, group in zip(all_axes, groups, strict=True):
        _draw_group(axes, group)
    _add_legend(all_axes[0])
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    save_figure(figure, path)
    return f"Effect sizes of {len(run)} claims. " + " ".join(map(_in_words, run))


def _draw_group(axes: Axes, group: list[dict[str, Any]]) -> None:
    ratio = group[0]["effect"]["ratio"]
    factor = 1 if ratio else 100
    for place, claim in enumerate(reversed(group)):
        effect, color = claim["effect"], _COLORS[claim["verdict"]]
        if effect["interval"]:
            low, high = (factor * end for end in effect["interval"])
            axes.plot([low, high], [place, place], color=color, linewidth=2.5, alpha=0.6)
        axes.plot(factor * effect["ours"], place, "o", color=color, markersize=5)
        if effect["paper"] is not None:
            axes.plot(factor * effect["paper"], place, "kD", markersize=4, fillstyle="none")
    axes.axvline(1 if ratio else 0, color="gray", linewidth=0.8)
    if ratio:
        axes.set_xscale("log")
    names = [f"{c['id']}: {c['effect']['name']}" for c in reversed(group)]
    axes.set_yticks(range(len(group)), names, fontsize=7)
    axes.set_ylim(-0.7, len(group) - 0.3)
    axes.set_xlabel("ratio" if ratio else "difference (points)", fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", alpha=0.3)


def _add_legend(axes: Axes) -> None:
    paper = Line2D([], [], color="black", marker="D", linestyle="", fillstyle="none", label="paper")
    ours = [
        Line2D([], [], color=color, marker="o", label=f"ours, {verdict}")
        for verdict, color in _COLORS.items()
        if verdict != UNDECIDED
    ]
    ours[1].set_label("ours, holds weakly or undecided")
    axes.legend(
        handles=[paper, *ours], loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2, fontsize=8,
        frameon=False,
    )  # fmt: skip


def _in_words(claim: dict[str, Any]) -> str:
    effect = claim["effect"]
    written = [f"{who} {effect[who]:.3g}" for who in ("paper", "ours") if effect[who] is not None]
    return f"{claim['id']}: {', '.join(written)}."
