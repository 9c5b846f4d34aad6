"""What came of the runs: a point for each that has a loss, and why the others have none."""

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


@dataclass(frozen=True)
class Point:
    run: LadderRun
    folder: str
    """The name of the run's folder."""
    loss: float
    """Nats per token, after the last step."""
    bits_per_byte: float | None

    def as_json(self) -> dict[str, Any]:
        own = {"folder": self.folder, "loss": self.loss, _PER_BYTE: self.bits_per_byte}
        sizes = {"tokens": self.run.tokens, "flops": self.run.flops}
        return {**asdict(self.run), **sizes, **own}


def read_points(
    runs: Iterable[tuple[LadderRun, Job]], failed: Container[Path] = ()
) -> tuple[list[Point], dict[str, str]]:
    """Points, and name of a run -> why it has none."""
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
        said = next((line.strip() for line in reversed(words) if line.strip()), "without a word")
        return f"it failed: {said.removeprefix('mixit-titan: ')} (see {job.log})"
    done = max((line["step"] for line in lines), default=0)
    return f"it is at step {done:,}" if done else "it has not been started"


def sizes(points: Sequence[Point]) -> np.ndarray:
    """(n, 2): N and D."""
    found = [(point.run.params, point.run.tokens) for point in points]
    return np.array(found, dtype=float).reshape(-1, 2)


def flops(points: Sequence[Point]) -> np.ndarray:
    """(n, 1)."""
    return np.array([point.run.flops for point in points]).reshape(-1, 1)


def losses(points: Sequence[Point]) -> np.ndarray:
    return np.array([point.loss for point in points])


def frontier(points: Sequence[Point]) -> list[Point]:
    """The runs that no run with as few FLOPs has beaten, by rising FLOPs: what a budget buys."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (point.run.flops, point.loss)):
        if not kept or point.loss < kept[-1].loss:
            kept.append(point)
    return kept
