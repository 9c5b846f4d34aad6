"""The size of a step, printed before it is measured; computed from arithmetic alone."""

import os
from collections.abc import Sequence

from mixit_titan.bench.measure import LEAST_WARM_UP
from mixit_titan.bench.memory import least_memory
from mixit_titan.bench.settings import Point
from mixit_titan.bench.steps import PLAIN
from mixit_titan.device import has_gpu

_CORE = 1e11
"""FLOPs per second in float32 that no CPU core exceeds."""
_LONG = 600
"""Seconds that a measurement on a CPU must take at least before a warning that it is long."""
_SMALL = {"--batch": 1, "--seq-len": 256, "--vocab": 1024}


def size_of_step(point: Point, variants: Sequence[str]) -> str:
    """Say `a step of each rank: 4,096 tokens (4 x 1,024), 0.52 TFLOP (standard), at least 0.9
    GiB`."""
    tokens = f"{point.batch} x {point.seq_len:,}"
    if point.microbatches > 1:
        tokens += f", in {point.microbatches} microbatches"
    memory = max(least_memory(point, [variant]) for variant in variants)
    return (
        f"a step of each rank: {point.tokens:,} tokens ({tokens}), "
        f"{_flops(point, 'standard') / 1e12:,.2g} TFLOP (standard), "
        f"at least {memory / 2**30:,.1f} GiB"
    )


def too_long(point: Point, variants: Sequence[str], rounds: int) -> str | None:
    """Say why the point is too large for the CPUs of this machine, and which options make it small;
    None if it is not, or if there is a GPU."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    steps = 1 + LEAST_WARM_UP + rounds
    work = steps * point.data_parallel * sum(_flops(point, variant) for variant in variants)
    seconds = work / (cores * _CORE)
    if has_gpu() or seconds < _LONG:
        return None
    sizes = {"--batch": point.batch, "--seq-len": point.seq_len, "--vocab": point.shape.vocab}
    smaller = [f"{flag} {_SMALL[flag]}" for flag, size in sizes.items() if size > _SMALL[flag]]
    advice = f"{' '.join(smaller)} makes it small" if smaller else "take a smaller --width"
    return (
        f"this is a measurement for a GPU: on the cores of this machine ({cores}) it takes "
        f"{seconds / 60:,.0f} minutes at the very least, and probably many times that. {advice}; "
        "Ctrl-C ends it at any time"
    )


def _flops(point: Point, variant: str) -> int:
    """Return the FLOPs of one step on each data-parallel rank."""
    name = "standard" if variant == PLAIN else variant
    return point.tokens * point.counts(name).flops_per_token
