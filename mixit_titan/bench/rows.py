"""From the times of a run to the rows of its table."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mixit_titan.bench.measure import Times
from mixit_titan.bench.memory import Peak
from mixit_titan.bench.settings import Point
from mixit_titan.bench.steps import PHASES, PLAIN
from mixit_titan.model.accounting import flops_per_token, speed_limit
from mixit_titan.model.variants import find_variant

_RESAMPLES = 2000


def rows(
    point: Point,
    times: Mapping[str, Times],
    peaks: Mapping[str, Peak],
    *,
    ranks: int = 1,
    peak_flops: float = math.nan,
) -> list[dict[str, Any]]:
    """One row a variant. `times` are those of the slowest rank, `peak_flops` that of one device."""
    standard = times["standard"].steps
    return [
        {
            "variant": name,
            **_speed(point.tokens * ranks, point.batch * ranks, taken),
            **_ratio(standard, taken.steps),
            **_limit(name, point, np.median(standard) / np.median(taken.steps)),
            **_flops(name, point, float(np.median(taken.steps)), peak_flops),
            **_cpu(times["standard"], taken),
            "peak_memory_bytes": peaks[name].accumulating,
            "peak_memory_one_batch_bytes": peaks[name].one_batch,
            "compile_seconds": taken.compile if point.compile else None,
            "round_seconds": taken.steps,
        }
        for name, taken in times.items()
    ]


def ratio_interval(base: Sequence[float], other: Sequence[float]) -> list[float]:
    """95% of median(base) / median(other), by bootstrap over the rounds that both took part in."""
    draw = np.random.default_rng(0).integers(len(base), size=(_RESAMPLES, len(base)))
    ratios = np.median(np.array(base)[draw], axis=1) / np.median(np.array(other)[draw], axis=1)
    return [float(q) for q in np.quantile(ratios, [0.025, 0.975])]


def _speed(tokens: int, samples: int, taken: Times) -> dict[str, Any]:
    # A slow step is a low speed: the first quartile of one is the third of the other.
    slow, middle, fast = (float(np.quantile(taken.steps, q)) for q in (0.75, 0.5, 0.25))
    return {
        "tokens_per_s": tokens / middle,
        "tokens_per_s_quartiles": [tokens / slow, tokens / fast],
        "samples_per_s": samples / middle,
        "samples_per_s_quartiles": [samples / slow, samples / fast],
        "step_seconds": middle,
        "phase_seconds": {
            phase: float(np.median([phases[phase] for phases in taken.phases])) for phase in PHASES
        },
    }


def _ratio(standard: Sequence[float], steps: Sequence[float]) -> dict[str, Any]:
    return {
        "ratio": float(np.median(standard) / np.median(steps)),
        "ratio_interval": ratio_interval(standard, steps),
    }


def _limit(name: str, point: Point, ratio: float) -> dict[str, Any]:
    limit = 1.0 if name == PLAIN else speed_limit(point.shape, find_variant(name))
    return {"limit": limit, "share_of_limit": float(ratio / limit)}


def _flops(name: str, point: Point, step: float, peak_flops: float) -> dict[str, Any]:
    """Useful FLOPs: what a checkpointed activation costs to compute again does not count."""
    variant = find_variant("standard" if name == PLAIN else name)
    per_second = flops_per_token(point.shape, variant) * point.tokens / step
    mfu = None if math.isnan(peak_flops) else per_second / peak_flops
    return {"tflops_per_rank": per_second / 1e12, "mfu": mfu}


def _cpu(standard: Times, taken: Times) -> dict[str, Any]:
    """By CPU time: what holds when other processes took part of the machine."""
    cpu, wall = float(np.median(taken.cpu)), float(np.median(taken.steps))
    return {
        "cpu_seconds": cpu,
        "cpu_seconds_per_second": cpu / wall,
        "ratio_by_cpu_time": float(np.median(standard.cpu) / cpu) if cpu else None,
    }
