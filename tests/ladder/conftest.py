"""Ladders whose losses are known: a power law for each stack, instead of training."""

import dataclasses
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from mixit_titan.jobs import runner
from mixit_titan.jobs.job import Job
from mixit_titan.ladder import command, figure, fits
from mixit_titan.ladder.command import LadderArguments, run_ladder
from mixit_titan.ladder.grid import LadderRun
from mixit_titan.ladder.jobs import ladder_job

LAWS = {
    "standard": (1.0, 40.0, 0.4, 60.0, 0.35),
    "frozen_qk": (1.0, 60.0, 0.4, 60.0, 0.35),
    "mixit": (1.3, 40.0, 0.4, 60.0, 0.35),
}
"""E, A, alpha, B, beta. The gap of frozen_qk falls as A/N^alpha does, that of mixit stays."""


def loss(stack: str, params: float, tokens: float) -> float:
    e, a, alpha, b, beta = LAWS[stack]
    return e + a / params**alpha + b / tokens**beta


def write_result(folder: Path, run: LadderRun, value: float | None) -> None:
    """As a training would have left it; None is NaN."""
    folder.mkdir(parents=True, exist_ok=True)
    bits = None if value is None else value / math.log(2)
    trained = {"step": run.steps, "loss": value, "tokens": run.tokens, "tokens_per_s": 1.0}
    validated = {"step": run.steps, "validation_loss": value, "bits_per_byte": bits}
    lines = [trained, validated | {"perplexity": value and math.exp(value)}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def train(folder: Path, run: LadderRun, broken: str) -> None:
    """The work of a job. `broken` is in the name of runs that end without a result. The folder of
    all runs knows how often each was started."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "started").open("a") as file:
        file.write(f"{folder.name}\n")
    if broken and broken in run.name:
        raise SystemExit(f"{run.name} is broken")
    write_result(folder, run, loss(run.stack, run.params, run.tokens))


class InThisProcess:
    """In the place of a job's own process, which takes longer to start than these jobs to end."""

    def __init__(self, job: Job, share: int) -> None:
        self.exitcode = 0
        try:
            job.work(*job.arguments)
        except SystemExit as said:
            job.folder.mkdir(parents=True, exist_ok=True)
            job.log.write_text(f"{said}\n")
            self.exitcode = 1

    def is_alive(self) -> bool:
        return False


@pytest.fixture
def ladder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """`mixit-titan ladder` on known laws; `broken` fails some of its runs. Returns its folder."""
    monkeypatch.setattr(runner.process, "start", InThisProcess)
    monkeypatch.setattr(runner.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(fits, "fit_with_draws", partial(fits.fit_with_draws, draws=30))
    monkeypatch.setattr(command, "bigram_loss", lambda text, **rows: 2.5)
    monkeypatch.setattr(figure, "draw", lambda ladder, path: path.touch())

    def call(*, broken: str = "", out: Path = tmp_path / "out", **options: object) -> Path:
        def job(run: LadderRun, *rest: object) -> Job:
            made = ladder_job(run, *rest)
            return dataclasses.replace(made, work=train, arguments=(made.folder, run, broken))

        monkeypatch.setattr(command, "ladder_job", job)
        run_ladder(LadderArguments(out=out, **({"stacks": (*LAWS,)} | options)))
        return out

    return call
