"""Times the steps of several models round-robin, so that a disturbance affects all of them
alike."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch

from mixit_titan.bench.steps import PHASES, Clock
from mixit_titan.device import has_gpu

LEAST_WARM_UP = 2
MOST_WARM_UP = 6
STABLE = 0.1
"""Warm-up ends when a round's time differs from the previous one's by no more than this
fraction."""


@dataclass
class Times:
    """The times of one model, in seconds."""

    first: float = 0.0
    """The first step, including compilation."""
    phases: list[dict[str, float]] = field(default_factory=list)
    """Seconds of each phase in each timed round."""
    cpu: list[float] = field(default_factory=list)
    """CPU time of all threads of this process in each timed round."""

    @property
    def steps(self) -> list[float]:
        """The total seconds of each timed round."""
        return [sum(phases.values()) for phases in self.phases]

    @property
    def compile(self) -> float:
        """How much longer the first step took than a typical one."""
        return max(0.0, self.first - statistics.median(self.steps))


class Stepping(Protocol):
    """Anything that can take a training step under a clock."""

    def step(self, clock: Clock) -> None: ...


class WallClock:
    """Measures seconds by perf_counter."""

    def start(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.last = time.perf_counter()

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[phase] += now - self.last
        self.last = now

    def read(self) -> dict[str, float]:
        return self.seconds


class CudaClock:
    """Measures seconds on the GPU by events, since the host runs ahead of it."""

    def start(self) -> None:
        self.marks = [("", self._mark())]

    def lap(self, phase: str) -> None:
        self.marks.append((phase, self._mark()))

    def read(self) -> dict[str, float]:
        torch.cuda.synchronize()
        seconds = dict.fromkeys(PHASES, 0.0)
        for (_, before), (phase, after) in zip(self.marks, self.marks[1:], strict=False):
            seconds[phase] += before.elapsed_time(after) / 1000
        return seconds

    @staticmethod
    def _mark() -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def measure(
    models: Mapping[str, Stepping],
    rounds: int,
    *,
    agree: Callable[[bool], bool] = lambda decision: decision,
    before_step: Callable[[], None] = lambda: None,
    note: Callable[[str], None] = lambda text: None,
) -> dict[str, Times]:
    """Warm up until times are stable, then time `rounds` rounds of one step of each model.

    With several ranks, each rank calls this for the same models, and all take the same steps in the
    same order: `agree` gives every rank one rank's decision on whether warm-up is over, since their
    clocks would disagree. `before_step` lets the ranks start together.
    """
    times = {name: Times() for name in models}
    names = list(models)

    def run(round_: int) -> dict[str, tuple[dict[str, float], float]]:
        # Each round begins with another model, so that none always follows the same one.
        start = round_ % len(names)
        taken = {}
        for name in names[start:] + names[:start]:
            before_step()
            taken[name] = _time(models[name])
        return taken

    for name, (phases, _) in run(0).items():
        times[name].first = sum(phases.values())
        note(f"{name}: first step {times[name].first:.2f} s")
    totals: list[float] = []
    while not agree(_warm(totals)):
        totals.append(sum(sum(phases.values()) for phases, _ in run(len(totals)).values()))
        note(f"warm-up round {len(totals)}: {totals[-1]:.2f} s")
    for round_ in range(rounds):
        for name, (phases, cpu) in run(round_).items():
            times[name].phases.append(phases)
            times[name].cpu.append(cpu)
        note(f"round {round_ + 1} of {rounds}")
    return times


def _warm(totals: list[float]) -> bool:
    if len(totals) < LEAST_WARM_UP:
        return False
    return len(totals) >= MOST_WARM_UP or abs(totals[-1] / totals[-2] - 1) <= STABLE


def _time(model: Stepping) -> tuple[dict[str, float], float]:
    clock = CudaClock() if has_gpu() else WallClock()
    cpu = time.process_time()
    model.step(clock)
    return clock.read(), time.process_time() - cpu
