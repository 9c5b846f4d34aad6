"""Measures one point of a benchmark, by this process and the other ranks, if there are any."""

import contextlib
import gc
import logging
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torchtitan.distributed import utils as dist_utils
from torchtitan.tools import utils

from mixit_titan.bench.measure import Times, measure
from mixit_titan.bench.memory import Peak, fit_together, fitting, peak_memory
from mixit_titan.bench.profile import profile
from mixit_titan.bench.ranks import agree, gather, highest, rank_rows, slowest
from mixit_titan.bench.report import ratio_interval, rows
from mixit_titan.bench.runs import load_variant
from mixit_titan.bench.settings import Point
from mixit_titan.bench.steps import PLAIN, Steps, build_steps
from mixit_titan.device import has_gpu, local_device
from mixit_titan.log import logger
from mixit_titan.runtime.launch import leave_process_group
from mixit_titan.runtime.stop import nothing_to_save
from mixit_titan.versions import environment

Note = Callable[[str], None]
_MANY = 64


def run_point(
    point: Point,
    variants: Sequence[str],
    rounds: int,
    *,
    interleaved: bool = True,
    profile_to: Path | None = None,
    note: Note = lambda text: None,
) -> dict[str, Any] | None:
    """Return the contents of bench.json on rank 0, and None on the others. Every rank calls this,
    and all take the same steps of the same models in the same order. `profile_to` is a folder for a
    profile of each variant."""
    with (
        _trainers(),
        nothing_to_save(),
        tempfile.TemporaryDirectory() as name,
        fitting(point, variants),
    ):
        folder = Path(name)
        _join(point, folder)
        if dist.get_rank() != 0:
            note = lambda text: None  # noqa: E731
        together = agree(interleaved and fit_together(point, variants))
        times: dict[str, Times] = {}
        for group in [variants] if together else [[variant] for variant in variants]:
            times |= _measure(point, group, rounds, folder, profile_to, note)
        peaks = {}
        for variant in variants:
            note(f"{variant}: measuring peak memory")
            peak = peak_memory(lambda v=variant: build_steps(v, point, folder))
            _clear()
            peaks[variant] = highest(peak)
        everyone = {name: gather(taken) for name, taken in times.items()}
        first = dist.get_rank() == 0
        if point.ranks > 1:
            dist.barrier()
    leave_process_group()
    if not first:
        return None
    found = result(point, {v: slowest(all_) for v, all_ in everyone.items()}, peaks, together)
    return rank_rows(found, point, everyone) if point.ranks > 1 else found


@contextlib.contextmanager
def _trainers() -> Iterator[None]:
    """A context in which several trainers may exist. For each one after the first, torchtitan would
    warn that a process group exists already, and it would turn garbage collection off for good."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        # All variants are compiled from one Block.forward, each as one entry of a cache.
        with torch._dynamo.config.patch(recompile_limit=_MANY):
            yield
    finally:
        logger.setLevel(level)
        gc.enable()


def _join(point: Point, folder: Path) -> None:
    """Create the process group as the first trainer would."""
    run = load_variant(point, "standard", folder)
    utils.device_module.set_device(local_device())
    offload = run.training.enable_cpu_offload
    dist_utils.init_distributed(run.comm, enable_cpu_backend=offload, base_folder=str(folder))


def _measure(
    point: Point,
    variants: Sequence[str],
    rounds: int,
    folder: Path,
    profile_to: Path | None,
    note: Note,
) -> dict[str, Times]:
    """Measure these variants, whose models are in memory at the same time."""
    models: dict[str, Steps] = {}
    for variant in variants:
        note(f"{variant}: building")
        models[variant] = build_steps(variant, point, folder)
    wait = dist.barrier if point.ranks > 1 else lambda: None
    times = measure(models, rounds, agree=agree, before_step=wait, note=note)
    if profile_to is not None:
        rank = dist.get_rank()
        for variant, model in models.items():
            # All ranks take the steps; each writes its own trace, and rank 0 gets the plain name.
            profile(model, variant, profile_to if rank == 0 else profile_to / f"rank_{rank}")
    for model in models.values():
        model.close()
    models.clear()
    _clear()
    return times


def _clear() -> None:
    """Free what a deleted model has left in memory and in the compiler's caches."""
    torch._dynamo.reset()
    gc.collect()
    if has_gpu():
        torch.cuda.empty_cache()


def result(
    point: Point, times: Mapping[str, Times], peaks: Mapping[str, Peak], interleaved: bool = True
) -> dict[str, Any]:
    """Assemble the contents of bench.json; `times` are those of the slowest rank."""
    rounds = len(times["standard"].steps)
    found: dict[str, Any] = {
        "measured": True,
        "interleaved": interleaved,
        "settings": {**point.as_json(), "rounds": rounds},
        "environment": environment(),
        "variants": rows(point, times, peaks, peak_flops=peak_flops()),
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
    """Return the peak bfloat16 FLOPs per second of this GPU, or NaN if unknown."""
    return utils.get_peak_flops(torch.cuda.get_device_name()) if has_gpu() else math.nan
