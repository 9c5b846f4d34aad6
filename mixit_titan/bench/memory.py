"""Whether a point fits into memory, and the peak of a training step.

The peak is the most bytes that torch's allocator had handed out at once. On a GPU the allocator
counts them. On a CPU the profiler sees each allocation and each release, in eager and in compiled
code alike; what a library takes for itself (MKL, oneDNN) is not seen.
"""

import contextlib
import gc
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

from mixit_titan.bench.measure import WallClock
from mixit_titan.bench.settings import Point
from mixit_titan.bench.steps import PLAIN, Steps
from mixit_titan.device import has_gpu, local_device
from mixit_titan.errors import ConfigError
from mixit_titan.host_memory import host_memory
from mixit_titan.model.accounting import memory_per_rank
from mixit_titan.model.storage import DTYPE_BYTES

_FEWER = ", name fewer --variants, or measure one after another by --no-interleaved"


@contextlib.contextmanager
def fitting(point: Point, variants: Sequence[str]) -> Iterator[None]:
    """Refuse what cannot fit, and turn an allocation that fails within into one sentence."""
    there = memory_of_rank(point.ranks)
    needed = max(least_memory(point, [variant]) for variant in variants)
    if needed > there:
        raise _too_big(point, f"it needs at least {_gib(needed)} and a rank has {_gib(there)}")
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise _too_big(point, "the GPU ran out of memory", _FEWER) from error
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):
            raise
        raise _too_big(point, "the machine ran out of memory", _FEWER) from error


def fit_together(point: Point, variants: Sequence[str]) -> bool:
    """Whether the models of all variants may be there at once, as far as can be told before."""
    return least_memory(point, variants) <= memory_of_rank(point.ranks)


def least_memory(point: Point, variants: Sequence[str]) -> int:
    """Bytes of a rank below which it cannot work: the state of all models, which are there at once,
    and of one of them the logits of a chunk and what each layer hands on to the next."""
    state = 0
    for variant in variants:
        counts = point.counts("standard" if variant == PLAIN else variant)
        state += memory_per_rank(counts, ranks=point.ranks, dtype=point.dtype).total
    shape, tokens = point.shape, point.tokens // point.microbatches
    # Ranks that have a batch together have a part of it each.
    tokens = tokens * point.data_parallel // point.ranks
    per_token = shape.vocab // point.chunks + shape.layers * shape.width
    return state + tokens * DTYPE_BYTES[point.dtype] * per_token


def memory_of_rank(ranks: int) -> int:
    """Bytes of one rank: its GPU's, or its share of the machine's."""
    if has_gpu():
        # To ask for what is free would make a context of each rank on the first GPU.
        return torch.cuda.get_device_properties(local_device()).total_memory
    return host_memory() // ranks


def _too_big(point: Point, why: str, advice: str = "") -> ConfigError:
    return ConfigError(
        f"a batch of {point.batch // point.microbatches} sequences of {point.seq_len} tokens does "
        f"not fit: {why}. Lower --batch or --seq-len{advice}"
    )


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"


@dataclass(frozen=True)
class Peak:
    accumulating: int
    """Of a step that accumulates two microbatches. In the second one weights, gradients, optimizer
    state and activations are all there at once."""
    one_batch: int
    """Of a step of one microbatch. The gradients come as the activations go, so where there are
    more activations than gradients, the gradients do not show in the peak."""


def peak_memory(build: Callable[[], Steps]) -> Peak:
    """Build a model and train a few steps of it. Nothing else may allocate meanwhile."""
    gc.collect()
    return _on_gpu(build) if has_gpu() else _on_cpu(build)


def _on_gpu(build: Callable[[], Steps]) -> Peak:
    before = torch.cuda.memory_allocated()
    steps = build()
    steps.step(WallClock(), 1)  # the optimizer's state is there from the second step on
    peaks = []
    for microbatches in (1, 2):
        torch.cuda.reset_peak_memory_stats()
        steps.step(WallClock(), microbatches)
        peaks.append(torch.cuda.max_memory_allocated() - before)
    steps.close()
    # Where a CUDA graph is captured, in the second step, its gradients are there already, and the
    # allocator sees nothing of what a replay uses.
    return Peak(one_batch=peaks[0], accumulating=max(peaks))


def _on_cpu(build: Callable[[], Steps]) -> Peak:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it prints that it starts and stops
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        steps = build()
        steps.step(WallClock(), 1)
        for microbatches in (1, 2):
            with torch.profiler.record_function(f"step of {microbatches}"):
                steps.step(WallClock(), microbatches)
        steps.close()
    return _read(profiler)


def _read(profiler: profile) -> Peak:
    """Walk the allocations in the order of time and take the highest level within each step."""
    events = profiler.profiler.kineto_results.events()
    spans = {
        event.name(): (event.start_ns(), event.end_ns())
        for event in events
        if event.name() in ("step of 1", "step of 2")
    }
    level, peaks = 0, dict.fromkeys(spans, 0)
    changes = ((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    for at, change in sorted(changes, key=lambda pair: pair[0]):
        level += change
        for name, (start, end) in spans.items():
            if start <= at <= end:
                peaks[name] = max(peaks[name], level)
    return Peak(one_batch=peaks["step of 1"], accumulating=peaks["step of 2"])
