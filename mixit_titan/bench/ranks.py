"""One point on many ranks: the trainer's FSDP2 model, and beside it one rank alone.

All ranks take the same steps of the same models in the same order. Whatever depends on a clock is
decided by rank 0 and told to the others: ranks that disagree on the number of steps would wait for
each other in different collectives.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torchtitan.config.configs import CommConfig, ParallelismConfig
from torchtitan.distributed import ParallelDims
from torchtitan.distributed import utils as dist_utils
from torchtitan.tools import utils

from mixit_titan.bench.arithmetic import bytes_per_step
from mixit_titan.bench.measure import Times, measure
from mixit_titan.bench.memory import Peak, fitting, peak_memory
from mixit_titan.bench.profile import profile
from mixit_titan.bench.run import result
from mixit_titan.bench.settings import Point
from mixit_titan.bench.steps import PHASES, Clock, Steps
from mixit_titan.device import local_device
from mixit_titan.model.variants import find_variant
from mixit_titan.runtime.launch import leave_process_group

_TIMEOUT = 1800
"""Seconds that a rank waits for another: for a compilation, or for one rank's steps alone."""


class Alone:
    """Steps of rank 0 without the others, which pass."""

    def __init__(self, variant: str, point: Point) -> None:
        self.steps = Steps(variant, point) if dist.get_rank() == 0 else None

    def step(self, clock: Clock) -> None:
        clock.start()
        if self.steps is not None:
            self.steps.step(clock)


def run_point_on_ranks(
    point: Point,
    variants: Sequence[str],
    rounds: int,
    *,
    alone: bool,
    profile_to: Path | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> dict[str, Any] | None:
    """What bench.json holds, on rank 0; None on the others."""
    device = local_device()
    utils.device_module.set_device(device)
    dist_utils.init_distributed(CommConfig(init_timeout_seconds=_TIMEOUT, trace_buf_size=0))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if rank != 0:
        note = lambda text: None  # noqa: E731
    dims = ParallelDims.from_config(ParallelismConfig(spmd_backend="partial_dtensor"), ranks)
    with fitting(point, variants, ranks):
        models = {variant: Steps(variant, point, dims) for variant in variants}
        singles = {f"{v} alone": Alone(v, point) for v in variants} if alone else {}
        times = measure(
            {**models, **singles}, rounds, agree=_agree, before_step=dist.barrier, note=note
        )
        if profile_to is not None:
            for variant, model in models.items():
                # All ranks take the steps; each has its own trace, and rank 0 the plain name.
                profile(model, variant, profile_to if rank == 0 else profile_to / f"rank_{rank}")
        models.clear()
        singles.clear()
        peaks = {v: _peak(v, point, dims) for v in variants}
    everyone = {name: _gather(taken) for name, taken in times.items()}
    dist.barrier()
    leave_process_group()
    return _result(point, variants, everyone, peaks, ranks) if rank == 0 else None


def _agree(decision: bool) -> bool:
    """The decision of rank 0, on every rank."""
    said = torch.tensor(int(decision), device=local_device())
    dist.broadcast(said, src=0)
    return bool(said.item())


def _peak(variant: str, point: Point, dims: ParallelDims) -> Peak:
    """The highest of all ranks."""
    peak = peak_memory(lambda: Steps(variant, point, dims))
    both = torch.tensor([peak.accumulating, peak.one_batch], device=local_device())
    dist.all_reduce(both, op=dist.ReduceOp.MAX)
    return Peak(accumulating=int(both[0]), one_batch=int(both[1]))


def _gather(taken: Times) -> list[Times]:
    """The times of all ranks, on every rank."""
    mine = [
        [*(phases[phase] for phase in PHASES), cpu]
        for phases, cpu in zip(taken.phases, taken.cpu, strict=True)
    ]
    # A row for the first step too.
    table = torch.tensor([[taken.first, 0.0, 0.0, 0.0, 0.0], *mine], device=local_device())
    tables = [torch.empty_like(table) for _ in range(dist.get_world_size())]
    dist.all_gather(tables, table)
    gathered = []
    for (first, *_), *rows in (table.tolist() for table in tables):
        phases = [dict(zip(PHASES, row, strict=False)) for row in rows]
        gathered.append(Times(first=first, phases=phases, cpu=[row[-1] for row in rows]))
    return gathered


def slowest(everyone: Sequence[Times]) -> Times:
    """Of each round the rank that took longest: the step is over when it is."""
    rounds = range(len(everyone[0].phases))
    chosen = [max(everyone, key=lambda t, r=r: t.steps[r]) for r in rounds]
    return Times(
        first=max(taken.first for taken in everyone),
        phases=[taken.phases[r] for r, taken in zip(rounds, chosen, strict=True)],
        cpu=[taken.cpu[r] for r, taken in zip(rounds, chosen, strict=True)],
    )


def _result(
    point: Point,
    variants: Sequence[str],
    everyone: Mapping[str, list[Times]],
    peaks: Mapping[str, Peak],
    ranks: int,
) -> dict[str, Any]:
    together = {variant: slowest(everyone[variant]) for variant in variants}
    found = result(point, together, peaks, ranks=ranks)
    for row in found["variants"]:
        variant = row["variant"]
        row["tokens_per_s_per_rank"] = [
            point.tokens / float(np.median(taken.steps)) for taken in everyone[variant]
        ]
        row["communicated_bytes_per_step"] = bytes_per_step(find_variant(variant), point, ranks)
        if f"{variant} alone" in everyone:
            single = point.tokens / float(np.median(everyone[f"{variant} alone"][0].steps))
            row["tokens_per_s_alone"] = single
            row["scaling_efficiency"] = row["tokens_per_s"] / (ranks * single)
    return found
