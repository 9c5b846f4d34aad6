"""suite.png: accuracy by task and stack, and the mean over the share of attention layers."""

import itertools
from pathlib import Path
from typing import Any

from mixit_titan.plotting import color_of, legend_below, save_figure


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw the two panels; `found` is the content of suite.json."""
    from matplotlib.figure import Figure

    tasks, stacks = found["tasks"], [each["stack"] for each in found["stacks"]]
    figure = Figure(
        figsize=(6 + 0.9 * len(stacks), 2 + 0.5 * max(len(tasks), 5)), layout="constrained"
    )
    left, right = figure.subplots(1, 2)
    _tasks_by_stacks(left, found, tasks, stacks)
    _score_by_attention(right, found["stacks"])
    figure.suptitle(f"{found['suite']}, {found['scale']} scale, {found['layers']} layers")
    legend_below(figure, right, columns=4)
    save_figure(figure, path)


def _tasks_by_stacks(plot: Any, found: dict[str, Any], tasks: list[str], stacks: list[str]) -> None:
    at = {(cell["task"], cell["stack"]): cell["accuracy"] for cell in found["cells"]}
    means = [[_mean(at[task, stack]) for stack in stacks] for task in tasks]
    plot.imshow(means, vmin=0, vmax=100, cmap="viridis", aspect="auto")
    for row, values in enumerate(means):
        for column, value in enumerate(values):
            color, text = "black" if value > 60 else "white", f"{value:.0f}".replace("nan", "")
            plot.text(column, row, text, ha="center", va="center", color=color)
    plot.set_xticks(range(len(stacks)), stacks, rotation=30, ha="right")
    plot.set_yticks(range(len(tasks)), tasks)
    plot.set_title("test accuracy (%)")


def _score_by_attention(plot: Any, stacks: list[dict[str, Any]]) -> None:
    markers = itertools.cycle("osD^vP*X")
    for n, each in enumerate(stacks):
        if each["score"] is None:
            continue
        plot.errorbar(
            100 * each["attention"],
            100 * each["score"]["mean"],
            100 * each["score"]["std"],
            color=color_of(each["stack"], n),
            marker=next(markers),
            linestyle="",
            capsize=3,
            label=each["stack"],
        )
    plot.set_xlim(-5, 105)
    plot.set_xticks([0, 25, 50, 75, 100])
    plot.set_ylim(0, 103)
    plot.set_xlabel("layers with attention (%)")
    plot.set_ylabel("test accuracy (%)")
    plot.set_title("mean over tasks")
    plot.grid(alpha=0.3)


def _mean(value: dict[str, float] | None) -> float:
    return float("nan") if value is None else 100 * value["mean"]
