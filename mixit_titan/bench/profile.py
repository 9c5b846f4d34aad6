"""Where the time of a step goes: a Chrome trace and a table of the most expensive operators."""

import json
import os
from pathlib import Path

import torch
from rich import box
from rich.table import Table
from torch.profiler import ProfilerActivity

from mixit_titan.bench.measure import Stepping, WallClock
from mixit_titan.device import has_gpu
from mixit_titan.files import write_json, write_text
from mixit_titan.model.stack import as_folder
from mixit_titan.tables import literal, screen_table

STEPS = 2
TOP = 15
NAME = 44  # letters of an operator in a table


def profile(model: Stepping, variant: str, folder: Path) -> None:
    """Profile a few steps of a warmed-up model, and write VARIANT.trace.json (for chrome://tracing),
    VARIANT.txt and VARIANT.json into `folder`."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise it prints when it starts and stops
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if has_gpu() else [])]
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(STEPS):
            model.step(WallClock())
    averages = profiler.key_averages()
    key = "self_device_time_total" if has_gpu() else "self_cpu_time_total"
    table = averages.table(sort_by=key, row_limit=TOP, max_name_column_width=48)
    total = sum(getattr(event, key) for event in averages)
    top = sorted(averages, key=lambda event: getattr(event, key), reverse=True)[:TOP]
    folder.mkdir(parents=True, exist_ok=True)
    name = as_folder(variant)
    profiler.export_chrome_trace(str(folder / f"{name}.trace.json"))
    write_text(folder / f"{name}.txt", table + "\n")
    operators = [
        {
            "operator": event.key,
            "calls_per_step": event.count / STEPS,
            "milliseconds_per_step": getattr(event, key) / 1000 / STEPS,
            "share": getattr(event, key) / total,
        }
        for event in top
    ]
    write_json(folder / f"{name}.json", operators)


def operator_table(variant: str, folder: Path) -> Table:
    """Return the table of a profile that `profile` has written, narrow enough for a terminal."""
    operators = json.loads((folder / f"{as_folder(variant)}.json").read_text())
    rows = [
        (
            literal(shorten(operator["operator"])),
            f"{operator['calls_per_step']:,.0f}",
            f"{operator['milliseconds_per_step']:,.3f}",
            f"{operator['share']:.1%}",
        )
        for operator in operators
    ]
    header = ("operator", "calls/step", "ms/step", "share")
    title = f"{variant}: the most expensive operators"
    return screen_table(
        title, header, rows, no_wrap=True, title_justify="left", box=box.SIMPLE_HEAD
    )


def shorten(name: str) -> str:
    """Return an operator's name, cut where it is too long for a table."""
    return name if len(name) <= NAME else f"{name[: NAME - 3]}..."
