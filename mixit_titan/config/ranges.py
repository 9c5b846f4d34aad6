"""The ranges of the keys of a run's TOML file, where their type alone allows more. Those of
[model.mixing] are beside Recipe (model/recipes.py), which needs torch."""

import math
from collections.abc import Mapping
from typing import Any

from mixit_titan.errors import unknown
from mixit_titan.model.shapes import RANGES as SHAPE
from mixit_titan.ranges import COUNT, NOT_NEGATIVE, POSITIVE, SEED, SHARE, Range

_ROWS = Range(least=1, most=2**24, also=-1)
_DEGREE = Range(least=1, most=2**20)
_SECONDS = Range(least=1, most=10**9)  # torch counts 64-bit nanoseconds
_LIMIT = Range(least=1, most=10**9)  # seconds; a shorter one would end every run
_STEPS = Range(least=1, most=2**40)

RANGES: dict[str, Range] = {
    **{f"model.{key}": allowed for key, allowed in SHAPE.items()},
    "model.mixing.seed": SEED,
    "data.seed": SEED,
    "data.workers": Range(least=0, most=256),
    "data.sources.weight": Range(least=0, most=10**12),
    "data.sources.after": Range(least=0, most=2**40),
    "training.local_batch_size": Range(least=1, most=2**20),
    "training.global_batch_size": _ROWS,
    "training.seq_len": Range(least=1, most=2**24),
    "training.max_norm": Range(above=0, also=math.inf),
    "training.steps": _STEPS,
    "training.gc_freq": COUNT,
    "training.bad_steps_in_a_row": COUNT,
    "training.bad_steps_in_all": COUNT,
    "training.spike": POSITIVE,
    "optimizer.lr": POSITIVE,
    "optimizer.betas": Range(least=0, below=1),
    "optimizer.eps": NOT_NEGATIVE,
    "optimizer.weight_decay": Range(least=0, most=1000),
    "optimizer.groups.lr_factor": Range(above=0, most=10**6),
    "optimizer.groups.weight_decay": Range(least=0, most=1000),
    "optimizer.groups.freeze_until": _STEPS,
    "optimizer.groups.freeze_after": _STEPS,
    "lr_scheduler.warmup_steps": NOT_NEGATIVE,
    "lr_scheduler.total_steps": _STEPS,
    "lr_scheduler.decay_ratio": SHARE,
    "lr_scheduler.min_lr_factor": SHARE,
    "loss.num_chunks": COUNT,
    "parallelism.data_parallel_replicate_degree": _DEGREE,
    "parallelism.data_parallel_shard_degree": Range(least=1, most=2**20, also=-1),
    "parallelism.tensor_parallel_degree": _DEGREE,
    "parallelism.pipeline_parallel_degree": _DEGREE,
    "parallelism.pipeline_parallel_first_stage_less_layers": NOT_NEGATIVE,
    "parallelism.pipeline_parallel_last_stage_less_layers": NOT_NEGATIVE,
    "parallelism.pipeline_parallel_layers_per_stage": COUNT,
    "parallelism.pipeline_parallel_microbatch_size": COUNT,
    "parallelism.context_parallel_degree": _DEGREE,
    "parallelism.expert_parallel_degree": Range(least=1, most=1),  # no variant has experts
    "checkpoint.interval": COUNT,
    "checkpoint.keep_latest_k": NOT_NEGATIVE,
    "checkpoint.load_step": Range(least=0, also=-1),
    "validator.freq": COUNT,
    "validator.rows": Range(least=1, also=-1),
    "eval.freq": COUNT,
    "eval.limit": COUNT,
    "metrics.log_freq": COUNT,
    "profiler.profile_freq": COUNT,
    "profiler.profiler_repeat": NOT_NEGATIVE,
    "profiler.profiler_skip_first": NOT_NEGATIVE,
    "profiler.profiler_skip_first_wait": NOT_NEGATIVE,
    "profiler.profiler_active": COUNT,
    "profiler.profiler_warmup": NOT_NEGATIVE,
    "profiler.memory_snapshot_freq": COUNT,
    "profiler.memory_snapshot_max_entries": COUNT,
    "watch.start": _LIMIT,
    "watch.first_step": _LIMIT,
    "watch.step": _LIMIT,
    "watch.validation": _LIMIT,
    "watch.save": _LIMIT,
    "comm.init_timeout_seconds": _SECONDS,
    "comm.train_timeout_seconds": _SECONDS,
    "comm.trace_buf_size": Range(least=0, most=2**31 - 1),
    "debug.seed": SEED,
}

NAMES: dict[str, tuple[str, ...]] = {
    "compile.components": ("model", "loss"),
    "checkpoint.exclude_from_loading": ("optimizer", "dataloader", "lr_scheduler", "train_state"),
    "parallelism.context_parallel_load_balancer": ("headtail", "ptrr"),
}
"""Key -> the names that its text, or each text of its list, may have."""


def check_names(values: Mapping[str, Any]) -> None:
    """Refuse a name that is not among those that its key allows."""
    for key, allowed in NAMES.items():
        given = values.get(key)
        for name in given if isinstance(given, list) else [given]:
            if name is not None and name not in allowed:
                raise unknown(key, name, allowed)
