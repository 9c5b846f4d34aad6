"""One point of a benchmark, measured in this process."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torchtitan.tools import utils

from mixit_titan.bench.measure import Times, measure
from mixit_titan.bench.memory import Peak, fitting, peak_memory
from mixit_titan.bench.profile import profile
from mixit_titan.bench.report import ratio_interval, rows
from mixit_titan.bench.settings import Point
from mixit_titan.bench.steps import PLAIN, Steps
from mixit_titan.device import has_gpu
from mixit_titan.versions import environment


def run_point(
    point: Point,
    variants: Sequence[str],
    rounds: int,
    *,
    profile_to: Path | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """What bench.json holds. `profile_to`: a folder for a profile of each variant."""
    with fitting(point, variants, ranks=1):
        models = {variant: Steps(variant, point) for variant in variants}
        times = measure(models, rounds, note=note)
        if profile_to is not None:
            for variant, model in models.items():
                profile(model, variant, profile_to)
        models.clear()
        peaks = {v: peak_memory(lambda v=v: Steps(v, point)) for v in variants}
    return result(point, times, peaks)


def result(
    point: Point, times: Mapping[str, Times], peaks: Mapping[str, Peak], *, ranks: int = 1
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "settings": {**point.as_json(), "rounds": len(times["standard"].steps), "ranks": ranks},
        "environment": environment(),
        "variants": rows(point, times, peaks, ranks=ranks, peak_flops=peak_flops()),
    }
    if PLAIN in times:
        plain, standard = times[PLAIN].steps, times["standard"].steps
        row = next(row for row in found["variants"] if row["variant"] == PLAIN)
        found["standard_to_plain"] = {
            "ratio": 1 / row["ratio"],
            "ratio_interval": ratio_interval(plain, standard),
        }
    return found


def peak_flops() -> float:
    """Of this GPU in bfloat16; NaN where nobody knows it."""
    return utils.get_peak_flops(torch.cuda.get_device_name()) if has_gpu() else math.nan
