"""A training run as a job, which is finished when it was validated after its last step."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

from mixit_titan.config.run import run_train
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.jobs.job import Job, Result
from mixit_titan.runtime.metrics import read_metrics

TRAINING_MODULES = ("mixit_titan.config.run", "torch._dynamo")
"""Modules to import once for many training runs. The first step of any optimizer imports the last
one, which takes a second or two."""


def training_job(
    config: str,
    overrides: list[str],
    folder: Path,
    *,
    name: str,
    steps: int,
    nproc: int | None = None,
    alone: bool = False,
    settings: dict[str, Any] | None = None,
) -> Job:
    """A job that trains a file of train_configs/. `overrides` must set the same number of `steps`,
    and a validation after them, whose line in metrics.jsonl is the result."""
    own = ["--dump_folder", str(folder)]
    return Job(
        folder=folder,
        name=name,
        kind=config,
        work=run_train,
        arguments=(str(shipped_configs()[config]), [*own, *overrides], nproc),
        read=partial(_last_validation, steps=steps),
        settings=settings or {},
        alone=alone,
        mend=partial(_remove_last_without_validation, steps=steps),
        status=partial(_status, steps=steps),
    )


def _last_validation(folder: Path, *, steps: int) -> Result | None:
    for line in read_metrics(folder / "metrics.jsonl"):
        if line["step"] == steps and None not in map(line.get, ("validation_loss", "perplexity")):
            return line
    return None


def _remove_last_without_validation(folder: Path, *, steps: int) -> None:
    """Make a run that was stopped between its last step and its last validation repeat the last
    steps: with no steps left to do, it would never validate."""
    if (folder / "checkpoint" / f"step-{steps}").exists():
        shutil.rmtree(folder / "checkpoint" / f"step-{steps}")


def _status(folder: Path, *, steps: int) -> str:
    lines = read_metrics(folder / "metrics.jsonl")
    trained = [line for line in lines if None not in map(line.get, ("loss", "tokens_per_s"))]
    if not trained:
        return ""
    last = trained[-1]
    return (
        f"step {last['step']:,} of {steps:,}, training loss {last['loss']:.3f}, "
        f"{last['tokens_per_s']:,.0f} tokens/s"
    )
