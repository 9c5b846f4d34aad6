"""Where the time of a step goes: a Chrome trace and a table of the costliest operators."""

import os
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity

from mixit_titan.bench.measure import Stepping, WallClock
from mixit_titan.device import has_gpu
from mixit_titan.files import write_json, write_text
from mixit_titan.model.stack import as_folder

STEPS = 2
TOP = 15


def profile(model: Stepping, variant: str, folder: Path) -> None:
    """Profile a few steps of a model that is warm; write VARIANT.trace.json (for
    chrome://tracing), VARIANT.txt and VARIANT.json."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it prints that it starts and stops
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
