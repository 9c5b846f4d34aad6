"""A run of a task as a job."""

from functools import partial
from pathlib import Path
from typing import Any

from mixit_titan.errors import ConfigError
from mixit_titan.jobs.job import Job, Result
from mixit_titan.reading import set_aside
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.tasks.command import run_task
from mixit_titan.tasks.loop import read_result
from mixit_titan.tasks.settings import Run
from mixit_titan.tasks.task import task_name

TASK_MODULES = ("mixit_titan.tasks.command", "torch._dynamo")
"""Modules to import once for many runs. The last is imported by the first step of any optimizer,
which takes a second or two."""
_FIGURES = ("accuracy", "exact", "loss", "trainable_params", "steps", "seconds")


def task_job(
    run: Run,
    folder: Path,
    *,
    name: str,
    device: str = "auto",
    settings: dict[str, Any] | None = None,
) -> Job:
    """Return the job that trains and tests a run in `folder`."""
    return Job(
        folder=folder,
        name=name,
        kind=task_name(run.task),
        work=partial(run_task, device=device, wandb=False, quiet=False),
        arguments=(run, folder),
        read=task_result,
        settings=settings or {},
        mend=_set_broken_result_aside,
        status=partial(_status, steps=run.settings.steps),
    )


def task_result(folder: Path) -> Result | None:
    """Read a result; None also if it is broken, in which case it is made again."""
    try:
        return read_result(folder)
    except ConfigError:
        return None


def result_row(folder: str, result: Result) -> dict[str, Any]:
    """Return what a table of many runs has of each."""
    return {
        "folder": folder,
        "variant": result["variant"],
        "seed": result["settings"]["seed"],
        **{key: result[key] for key in _FIGURES},
    }


def _set_broken_result_aside(folder: Path) -> None:
    """Rename a result that was cut off: the run is repeated, from its checkpoint if there is
    one."""
    result = folder / "result.json"
    if result.exists() and task_result(folder) is None:
        set_aside(result)


def _status(folder: Path, *, steps: int) -> str:
    result = task_result(folder)
    if result is not None:
        return f"accuracy {result['accuracy']:.2%}"
    lines = read_metrics(folder / "metrics.jsonl")
    return f"step {lines[-1]['step']:,} of {steps:,}" if lines else ""
