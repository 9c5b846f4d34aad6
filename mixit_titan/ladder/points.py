"""The results of the runs: a point for each run with a loss, and why the others have none."""

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mixit_titan.jobs.job import Job
from mixit_titan.ladder.grid import LadderRun
from mixit_titan.reading import read_end
from mixit_titan.runtime.metrics import read_metrics

_PER_BYTE = "bits_per_byte"
_SAME_BUDGET = 1.02  # budgets differ by more than this factor


@dataclass(frozen=True)
class Point:
    """A run and its final loss."""

    run: LadderRun
    folder: str
    """The name of the run's folder."""
    loss: float
    """The validation loss after the last step, in nats per token."""
    bits_per_byte: float | None

    def as_json(self) -> dict[str, Any]:
        """Its entry in ladder.json."""
        own = {"folder": self.folder, "loss": self.loss, _PER_BYTE: self.bits_per_byte}
        sizes = {"tokens": self.run.tokens, "flops": self.run.flops}
        return {**asdict(self.run), **sizes, **own}


def read_points(
    runs: Iterable[tuple[LadderRun, Job]], failed: Container[Path] = ()
) -> tuple[list[Point], dict[str, str]]:
    """The points, and for each run without one: its name -> why."""
    points, left_out = [], {}
    for run, job in runs:
        result = job.result
        loss = result.get("validation_loss") if result else None
        if loss is not None and math.isfinite(loss):
            points.append(Point(run, job.folder.name, loss, result.get(_PER_BYTE)))
        else:
            left_out[run.name] = _why(job, ended=bool(result), failed=job.folder in failed)
    return points, left_out


def _why(job: Job, *, ended: bool, failed: bool) -> str:
    lines = read_metrics(job.folder / "metrics.jsonl")
    for line in lines:
        if "loss" in line and (line["loss"] is None or not math.isfinite(line["loss"])):
            return f"its loss is not finite from step {line['step']:,} on"
    if ended:
        return "its validation loss is not finite"
    if failed:
        words = read_end(job.log).decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(words) if line.strip()), "without a message")
        return f"it failed: {said.removeprefix('mixit-titan: ')} (see {job.log})"
    done = max((line["step"] for line in lines), default=0)
    return f"it is unfinished, at step {done:,}" if done else "it has not been started"


def sizes(points: Sequence[Point]) -> np.ndarray:
    """N and D of each point, (n, 2)."""
    found = [(point.run.params, point.run.tokens) for point in points]
    return np.array(found, dtype=float).reshape(-1, 2)


def flops(points: Sequence[Point]) -> np.ndarray:
    """C of each point, (n, 1)."""
    return np.array([point.run.flops for point in points]).reshape(-1, 1)


def losses(points: Sequence[Point]) -> np.ndarray:
    """The loss of each point, (n,)."""
    return np.array([point.loss for point in points])


def frontier(points: Sequence[Point]) -> list[Point]:
    """The compute frontier, by FLOPs: the runs that no run of the same or a smaller budget beats.
    Runs of one budget differ by up to a step."""

    def is_beaten(point: Point) -> bool:
        most = _SAME_BUDGET * point.run.flops
        return any(
            (other.loss, other.run.flops) < (point.loss, point.run.flops)
            for other in points
            if other.run.flops <= most
        )

    kept = [point for point in points if not is_beaten(point)]
    return sorted(kept, key=lambda point: point.run.flops)
