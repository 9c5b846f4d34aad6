"""Whether a point fits into memory, and the peak memory of a training step.

The peak is the most bytes that torch's allocator had handed out at any one time. On a GPU the
allocator counts them. On a CPU the profiler sees every allocation and release, in eager and
compiled code alike, but not what a library allocates for itself (MKL, oneDNN).
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
    """Refuse a point that cannot fit, and turn an allocation that fails within the context into one
    sentence."""
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
    """Return whether the models of all variants can be in memory at once, as far as arithmetic can
    tell."""
    return least_memory(point, variants) <= memory_of_rank(point.ranks)


def least_memory(point: Point, variants: Sequence[str]) -> int:
    """Return a lower bound on the bytes that a rank needs: the state of all models, which exist at
    once, and for one of them the logits of a chunk and the activations passed between layers."""
    state = 0
    for variant in variants:
        counts = point.counts("standard" if variant == PLAIN else variant)
        state += memory_per_rank(counts, ranks=point.ranks, dtype=point.dtype).total
    shape, tokens = point.shape, point.tokens // point.microbatches
    # Ranks that share a batch have part of it each.
    tokens = tokens * point.data_parallel // point.ranks
    per_token = shape.vocab // point.chunks + shape.layers * shape.width
    return state + tokens * DTYPE_BYTES[point.dtype] * per_token


def memory_of_rank(ranks: int) -> int:
    """Return the bytes of memory of one rank: its GPU's, or its share of the machine's."""
    if has_gpu():
        # Asking for free memory would create a context of each rank on the first GPU.
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
    """The peak memory of a training step, in bytes."""

    accumulating: int
    """Peak of a step that accumulates two microbatches. In the second one, weights, gradients,
    optimizer state and activations all exist at once."""
    one_batch: int
    """Peak of a step of one microbatch. Gradients appear as activations are freed, so if there are
    more activations than gradients, the gradients do not show in the peak."""


def peak_memory(build: Callable[[], Steps]) -> Peak:
    """Build a model and train it for a few steps; nothing else may allocate meanwhile."""
    gc.collect()
    return _on_gpu(build) if has_gpu() else _on_cpu(build)


def _on_gpu(build: Callable[[], Steps]) -> Peak:
    before = torch.cuda.memory_allocated()
    steps = build()
    steps.step(WallClock(), 1)  # the optimizer's state exists from the second step on
    peaks = []
    for microbatches in (1, 2):
        torch.cuda.reset_peak_memory_stats()
        steps.step(WallClock(), microbatches)
        peaks.append(torch.cuda.max_memory_allocated() - before)
    steps.close()
    # Where a CUDA graph is captured, in the second step, its gradients already exist, and the
    # allocator sees nothing of what a replay uses.
    return Peak(one_batch=peaks[0], accumulating=max(peaks))


def _on_cpu(build: Callable[[], Steps]) -> Peak:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise it prints when it starts and stops
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        steps = build()
        steps.step(WallClock(), 1)
        for microbatches in (1, 2):
            with torch.profiler.record_function(f"step of {microbatches}"):
                steps.step(WallClock(), microbatches)
        steps.close()
    return _read(profiler)


def _read(profiler: profile) -> Peak:
    """Walk through the allocations in order of time, and return the highest level within each
    step."""
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
