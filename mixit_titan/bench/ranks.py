"""What several ranks know about each other.

Whatever depends on a clock is decided by rank 0 and broadcast: ranks that disagreed on the number
of steps would wait for each other in different collectives.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from mixit_titan.bench.arguments import BenchArguments, command_line
from mixit_titan.bench.measure import Times
from mixit_titan.bench.memory import Peak
from mixit_titan.bench.settings import Point
from mixit_titan.bench.steps import PHASES
from mixit_titan.config.checks import SHARD_OVER_ALL
from mixit_titan.device import local_device
from mixit_titan.errors import ConfigError
from mixit_titan.model.communication import step_bytes
from mixit_titan.model.memory import Step
from mixit_titan.model.stack import Stack
from mixit_titan.parent import ending_with_this

_OF_A_RANK = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_")
_OF_A_STEP = "SLURM_STEP_"


def agree(decision: bool) -> bool:
    """Return rank 0's decision on every rank."""
    said = torch.tensor(int(decision), device=local_device())
    dist.broadcast(said, src=0)
    return bool(said.item())


def highest(peak: Peak) -> Peak:
    """Return the highest value of all ranks."""
    both = torch.tensor([peak.accumulating, peak.one_batch], device=local_device())
    dist.all_reduce(both, op=dist.ReduceOp.MAX)
    return Peak(accumulating=int(both[0]), one_batch=int(both[1]))


def gather(taken: Times) -> list[Times]:
    """Return the times of all ranks on every rank."""
    mine = [
        [*(phases[phase] for phase in PHASES), cpu]
        for phases, cpu in zip(taken.phases, taken.cpu, strict=True)
    ]
    # One row for the first step, too.
    table = torch.tensor([[taken.first] + [0.0] * len(PHASES), *mine], device=local_device())
    tables = [torch.empty_like(table) for _ in range(dist.get_world_size())]
    dist.all_gather(tables, table)
    gathered = []
    for (first, *_), *rows in (table.tolist() for table in tables):
        phases = [dict(zip(PHASES, row, strict=False)) for row in rows]
        gathered.append(Times(first=first, phases=phases, cpu=[row[-1] for row in rows]))
    return gathered


def slowest(everyone: Sequence[Times]) -> Times:
    """Take each round's time from the slowest rank, since the step is over when that rank is
    done."""
    rounds = range(len(everyone[0].phases))
    chosen = [max(everyone, key=lambda t, r=r: t.steps[r]) for r in rounds]
    return Times(
        first=max(taken.first for taken in everyone),
        phases=[taken.phases[r] for r, taken in zip(rounds, chosen, strict=True)],
        cpu=[taken.cpu[r] for r, taken in zip(rounds, chosen, strict=True)],
    )


def rank_rows(
    found: dict[str, Any], point: Point, everyone: Mapping[str, list[Times]]
) -> dict[str, Any]:
    """Add the columns that only several ranks have. The bytes are those of FSDP2 over all ranks."""
    for row in found["variants"]:
        variant = row["variant"]
        # A rank's share: the ranks of a tensor-parallel group share one batch.
        tokens = point.tokens * point.data_parallel / point.ranks
        row["tokens_per_s_per_rank"] = [
            tokens / float(np.median(taken.steps)) for taken in everyone[variant]
        ]
        if shards_over_all(point):
            row["communicated_bytes_per_step"] = moved_bytes(point.stack(variant), point)
    return found


def moved_bytes(stack: Stack, point: Point) -> dict[str, int]:
    """Return the bytes that a rank receives in a step."""
    step = Step(
        rows=point.batch // point.microbatches,
        length=point.seq_len,
        dtype=point.dtype,
        chunks=point.chunks,
        microbatches=point.microbatches,
        shards=point.ranks,
        frozen=point.frozen,
    )
    moved = step_bytes(point.shape, stack, step)
    return {"weights": moved.weights, "gradients": moved.gradients, "total": moved.total}


def shards_over_all(point: Point) -> bool:
    """Return whether FSDP2 shards over all ranks, with no other parallelism."""
    degrees = point.run.get("parallelism", {})
    replicas = int(degrees.get("data_parallel_replicate_degree", 1))
    return point.data_parallel == point.ranks and replicas == 1


def measure_alone(args: BenchArguments, point: Point) -> dict[str, float]:
    """Measure tokens per second of each variant on one rank, with as many sequences per step as a
    rank has here, in a separate process on this rank's GPU and with its number of threads."""
    local = point.batch // point.microbatches
    sizes = ["--training.local_batch_size", str(local)]
    sizes += ["--training.global_batch_size", str(point.batch)]
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith((*_OF_A_RANK, _OF_A_STEP))
    }
    with tempfile.TemporaryDirectory() as folder:
        alone = replace(args, nproc=None, profile=False, out=Path(folder))
        alone.overrides += (*sizes, *SHARD_OVER_ALL)
        done = subprocess.run(
            ending_with_this("bench", *command_line(alone)),
            env=environment,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or ["it ended without output"]
            raise ConfigError(
                f"one rank alone cannot be measured ({said[-1]}): --no-alone leaves it out"
            )
        found = json.loads((Path(folder) / "bench.json").read_text())
    return {row["variant"]: row["tokens_per_s"] for row in found["variants"]}


def add_efficiency(found: dict[str, Any], alone: Mapping[str, float]) -> None:
    """Add the scaling efficiency, given the speeds of one rank alone."""
    for row in found["variants"]:
        single = alone[row["variant"]]
        row["tokens_per_s_alone"] = single
        row["scaling_efficiency"] = row["tokens_per_s"] / (found["settings"]["ranks"] * single)
