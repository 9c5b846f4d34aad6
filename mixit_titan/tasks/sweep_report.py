"""The results of a sweep: mean and standard deviation over seeds, the best of each variant, a
figure."""

import shlex
import statistics
from pathlib import Path
from typing import Any

from rich.console import Console

from mixit_titan.files import write_json, write_text
from mixit_titan.plotting import color_of, legend_below, save_figure
from mixit_titan.tables import markdown_table, screen_table
from mixit_titan.tasks.choice import rank
from mixit_titan.tasks.loop import extra_figures

Row = dict[str, Any]

_WIDE = 60  # letters below an axis


def write_report(task: str, axes: list[str], rows: list[Row], out: Path, console: Console) -> None:
    """Print the table, and write sweep.json, sweep.md and sweep.png."""
    groups = _groups(rows)
    best = _best(groups)
    found = {"task": task, "points": rows, "groups": groups, "best": best}
    write_json(out / "sweep.json", found)
    header, body = _cells(axes, groups, best)
    runs = markdown_table(*_runs(axes, rows))
    write_text(out / "sweep.md", f"{markdown_table(header, body)}\n{runs}")
    _plot(task, axes, groups, out / "sweep.png")
    over = "mean and standard deviation over seeds"
    if all(group["seeds"] == 1 for group in groups):
        over = "one seed"
    title = f"{task}: {over}; * best of its variant"
    console.print(screen_table(title, header, body, left=len(header)))
    for name in ("sweep.json", "sweep.md", "sweep.png"):
        console.print(f"wrote {out / name}", soft_wrap=True)
    layered = [row["folder"] for row in rows if row["variant"] != "lstm"]
    if layered:
        own = ["--task", task] if ":" in task else []
        words = ["mixit-titan", "analyze", "attention", str(out / layered[0]), *own]
        console.print("sweep.md names the folder of each run. To look inside one:", soft_wrap=True)
        console.print(f"  {shlex.join(words)}", soft_wrap=True)


def _groups(rows: list[Row]) -> list[Row]:
    """Return one entry for each variant and place in the grid, over its seeds."""
    places: dict[tuple, list[Row]] = {}
    for row in rows:
        places.setdefault((row["variant"], *row["axes"].items()), []).append(row)
    return [
        {
            "variant": same[0]["variant"],
            "axes": same[0]["axes"],
            "seeds": len(same),
            "trainable_params": same[0]["trainable_params"],
            **{
                key: spread([row[key] for row in same])
                for key in ("accuracy", "exact", "loss", "seconds", *extra_figures(same[0]))
            },
        }
        for same in places.values()
    ]


def _runs(axes: list[str], rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the table of the runs, which tells whose settings a folder's hash stands for."""
    header = ["variant", *axes, "seed", "accuracy", "folder"]
    body = [
        [
            *(row["variant"], *row["axes"].values()),
            *(str(row["seed"]), f"{row['accuracy']:.2%}", row["folder"]),
        ]
        for row in rows
    ]
    return header, body


def spread(values: list[float]) -> dict[str, float]:
    """Return mean, standard deviation and range over seeds."""
    return {
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else 0.0,
        "min": min(values),
        "max": max(values),
    }


def _best(groups: list[Row]) -> dict[str, dict[str, str]]:
    """Return, for each variant, the place in the grid that a choice would take."""
    best: dict[str, Row] = {}
    for group in groups:
        held = best.get(group["variant"])
        if held is None or _rank(group) > _rank(held):
            best[group["variant"]] = group
    return {variant: group["axes"] for variant, group in best.items()}


def _rank(group: Row) -> tuple[float, float]:
    return rank({key: group[key]["mean"] for key in ("accuracy", "loss")})


def _cells(
    axes: list[str], groups: list[Row], best: dict[str, dict[str, str]]
) -> tuple[list[str], list[list[str]]]:
    extra = extra_figures(groups[0])
    header = ["variant", *axes, "accuracy", "exact", "seeds", "trained", "seconds"]
    header += [key.replace("_per_", "/").replace("_", " ") for key in extra]
    body = []
    for group in groups:
        star = " *" if best[group["variant"]] == group["axes"] else ""
        cells = [group["variant"], *group["axes"].values()]
        cells += [_percent(group, "accuracy") + star, _percent(group, "exact")]
        cells += [str(group["seeds"]), f"{group['trainable_params']:,}"]
        cells.append(f"{group['seconds']['mean']:,.0f}")
        cells += [_figure(group, key) for key in extra]
        body.append(cells)
    return header, body


def _percent(group: Row, key: str) -> str:
    """Format mean and deviation as percentages; one seed has no deviation."""
    deviation = f" ± {100 * group[key]['std']:.2f}" if group["seeds"] > 1 else ""
    return f"{100 * group[key]['mean']:.2f}{deviation}%"


def _figure(group: Row, key: str) -> str:
    """Format mean and deviation as numbers; one seed has no deviation."""
    deviation = f" ± {group[key]['std']:.3f}" if group["seeds"] > 1 else ""
    return f"{group[key]['mean']:.3f}{deviation}"


def _plot(task: str, axes: list[str], groups: list[Row], path: Path) -> None:
    """Plot accuracy against the first key of the grid, each variant at its best along the
    others."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    plot = figure.subplots()
    ticks = list(dict.fromkeys(_tick(axes, group) for group in groups))
    for n, variant in enumerate(dict.fromkeys(group["variant"] for group in groups)):
        means, errors, places = [], [], []
        for place, tick in enumerate(ticks):
            here = [g for g in groups if g["variant"] == variant and _tick(axes, g) == tick]
            if here:
                top = max((g["accuracy"] for g in here), key=lambda spread: spread["mean"])
                places.append(place)
                means.append(100 * top["mean"])
                errors.append(100 * top["std"])
        color = color_of(variant, n)
        plot.errorbar(places, means, errors, label=variant, color=color, marker="o", capsize=3)
    long = sum(map(len, ticks)) > _WIDE
    plot.set_xticks(range(len(ticks)), ticks, **({"rotation": 20, "ha": "right"} if long else {}))
    plot.set_xlabel(axes[0] if axes else "")
    plot.set_ylabel("test accuracy (%)")
    plot.set_ylim(0, 103)
    plot.set_title(task)
    plot.grid(alpha=0.3)
    legend_below(figure, plot)
    save_figure(figure, path)


def _tick(axes: list[str], group: Row) -> str:
    return group["axes"][axes[0]] if axes else "all"
