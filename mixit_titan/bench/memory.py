"""Peak memory of a training step: the most bytes that torch's allocator had handed out at once.

On a GPU the allocator counts them. On a CPU the profiler sees each allocation and each release, in
eager and in compiled code alike; what a library takes for itself (MKL, oneDNN) is not seen.
"""

import gc
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

from mixit_titan.bench.measure import WallClock
from mixit_titan.bench.steps import Steps
from mixit_titan.runtime.device import has_gpu


@dataclass(frozen=True)
class Peak:
    accumulating: int
    """Of a step that accumulates two batches. In the second one weights, gradients, optimizer
    state and activations are all there at once."""
    one_batch: int
    """Of a step of one batch. The gradients come as the activations go, so where there are more
    activations than gradients, the gradients do not show in the peak."""


def peak_memory(build: Callable[[], Steps]) -> Peak:
    """Build a model and train a few steps of it. Nothing else may allocate meanwhile."""
    gc.collect()
    return _on_gpu(build) if has_gpu() else _on_cpu(build)


def _on_gpu(build: Callable[[], Steps]) -> Peak:
    before = torch.cuda.memory_allocated()
    steps = build()
    steps.step(WallClock())  # the optimizer's state is there from the second step on
    peaks = []
    for batches in (1, 2):
        torch.cuda.reset_peak_memory_stats()
        steps.step(WallClock(), batches)
        peaks.append(torch.cuda.max_memory_allocated() - before)
    return Peak(one_batch=peaks[0], accumulating=peaks[1])


def _on_cpu(build: Callable[[], Steps]) -> Peak:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it prints that it starts and stops
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        steps = build()
        steps.step(WallClock())
        for batches in (1, 2):
            with torch.profiler.record_function(f"step of {batches}"):
                steps.step(WallClock(), batches)
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
