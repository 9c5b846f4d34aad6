"""The results of a suite: accuracy by task and stack, their mean, and what was tried."""

import statistics
from collections.abc import Collection
from pathlib import Path
from typing import Any

from rich.console import Console

from mixit_titan import __version__
from mixit_titan.files import write_json, write_text
from mixit_titan.suite.cells import Cell
from mixit_titan.suite.figure import draw
from mixit_titan.suite.plan import SuiteArguments
from mixit_titan.tables import markdown_table, screen_table
from mixit_titan.tasks.choice import FIRST_SEED, RULE
from mixit_titan.tasks.sweep_report import spread

Found = dict[str, Any]


def write_report(
    args: SuiteArguments, cells: list[Cell], failed: Collection[Path], console: Console
) -> None:
    """Print the results, and write suite.json, suite.md and suite.png."""
    found = summarize(args, cells, failed)
    out = args.folder
    write_json(out / "suite.json", found)
    header, body = _table(found)
    write_text(out / "suite.md", f"{_about(found)}\n\n{markdown_table(header, body)}")
    draw(found, out / "suite.png")
    console.print(screen_table(None, header, body))
    console.print(_about(found), soft_wrap=True, markup=False)
    for name in ("suite.json", "suite.md", "suite.png"):
        console.print(f"wrote {out / name}", soft_wrap=True)


def summarize(args: SuiteArguments, cells: list[Cell], failed: Collection[Path]) -> Found:
    """The content of suite.json."""
    entries = [_entry(cell, failed) for cell in cells]
    stacks = {cell.stack: cell.attention for cell in cells}
    return {
        "suite": args.name,
        "scale": args.scale,
        "version": __version__,
        "layers": cells[0].places[0].settings.layers,
        "grid": args.tried,
        "rule": RULE,
        "choosing_seed": FIRST_SEED,
        "seeds": [*cells[0].seeds],
        "tasks": [*dict.fromkeys(cell.problem for cell in cells)],
        "stacks": [
            {"stack": stack, "attention": share, "score": _score(entries, stack)}
            for stack, share in stacks.items()
        ],
        "cells": entries,
        **_cost(cells, failed),
    }


def _cost(cells: list[Cell], failed: Collection[Path]) -> Found:
    """The number of finished runs, and the seconds that all runs took, restarts included."""
    jobs = [job for cell in cells for job in [*cell.searched(), *cell.reported(failed)]]
    done = [job for job in jobs if job.result is not None]
    return {"runs": len(done), "seconds": round(sum(job.seconds for job in jobs), 3)}


def _entry(cell: Cell, failed: Collection[Path]) -> Found:
    rows = cell.figures(failed)
    choice = cell.choice(failed) or {}
    return {
        "task": cell.problem,
        "stack": cell.stack,
        "chosen": choice.get("chosen"),
        "tried": choice.get("tried", []),
        "accuracy": spread([row["accuracy"] for row in rows]) if rows else None,
        "seeds": [{key: row[key] for key in row if key != "variant"} for row in rows],
    }


def _score(entries: list[Found], stack: str) -> dict[str, float] | None:
    """The mean over tasks, with its spread over seeds; None until all tasks share a seed."""
    own = [
        {row["seed"]: row["accuracy"] for row in entry["seeds"]}
        for entry in entries
        if entry["stack"] == stack
    ]
    common = set.intersection(*(set(task) for task in own))
    means = [statistics.fmean(task[seed] for task in own) for seed in sorted(common)]
    return spread(means) if means else None


def _table(found: Found) -> tuple[list[str], list[list[str]]]:
    stacks = [each["stack"] for each in found["stacks"]]
    at = {(cell["task"], cell["stack"]): cell for cell in found["cells"]}
    body = []
    for task in found["tasks"]:
        body.append([task, *(_percent(at[task, stack]["accuracy"]) for stack in stacks)])
    body.append(["mean over tasks", *(_percent(each["score"]) for each in found["stacks"])])
    shares = [f"{each['attention'] * found['layers']:.0f}" for each in found["stacks"]]
    body.append([f"attention layers (of {found['layers']})", *shares])
    return [found["suite"], *stacks], body


def _percent(value: dict[str, float] | None) -> str:
    return "" if value is None else f"{100 * value['mean']:.2f} ± {100 * value['std']:.2f}%"


def _about(found: Found) -> str:
    grid = "; ".join(f"{key} {', '.join(values)}" for key, values in found["grid"].items())
    seeds = ", ".join(map(str, found["seeds"]))
    return (
        f"Test accuracy, mean and standard deviation over seeds {seeds}, at {found['scale']} "
        f"scale. For each task and stack, settings were chosen on validation with seed "
        f"{found['choosing_seed']}, from this grid: {grid}. {found['runs']} runs took "
        f"{found['seconds'] / 60:,.0f} minutes of process time in total."
    )
