"""Runs of tasks as `compare` reads them, such as those of a sweep: by their test loss. Evaluations
right after a logged step do not count as seconds of training.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mixit_titan.comparison.runs import CannotCompare, TrainingRun
from mixit_titan.errors import ConfigError
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.tasks.loop import read_result
from mixit_titan.tasks.models import flops_per_token
from mixit_titan.tasks.trained import run_of

_NAMED = ("variant", "stack", "mixer", "freeze", "seed")
"""Settings that are already in the name of the model or in the seeds of the run."""


def read_task_run(folder: Path) -> TrainingRun:
    """Read a finished run of a task. An unfinished one cannot be read: its folder names no task."""
    try:
        result = read_result(folder)
        if result is None:
            raise CannotCompare("has no result.json yet: a task is compared once it is finished")
        run = run_of(result, folder)
        flops = flops_per_token(run)
        lines = read_metrics(folder / "metrics.jsonl")
    except ConfigError as error:
        raise CannotCompare(f"cannot be compared: {error}") from None
    if not any(line.get("test_loss") is not None for line in lines):
        raise CannotCompare("has no test loss in its metrics.jsonl")
    settings = run.settings
    own = {key: value for key, value in asdict(settings).items() if key not in _NAMED}
    return TrainingRun(
        folder=folder,
        variant=settings.name,
        settings={**own, "model.variant": settings.name, "model.freeze": settings.freeze},
        seeds=(settings.seed,),
        text=(result["task"], asdict(run.task), settings.held_out),
        tokenizer="",
        bytes_per_token=None,
        lines=_with_tokens(lines, settings.batch * run.task.positions),
        flops_per_token=flops,
        phases=(),
        starts=[0],
        trained_params=result["trainable_params"],
        state="finished",
        failure="",
        accuracy=result["accuracy"],
    )


def _with_tokens(lines: Sequence[dict[str, Any]], per_step: int) -> list[dict[str, Any]]:
    """Add the `tokens` and `tokens_per_s` that a training run logs. A task logs the seconds since
    its start instead, which include those of evaluations."""
    found, before, spent, trained = [], 0.0, 0.0, 0
    for line in lines:
        since = line.get("seconds", before) - before
        before += since
        if "test_loss" not in line or line["step"] != trained:
            spent += since
        if line.get("loss") is not None:
            tokens = (line["step"] - trained) * per_step
            rate = tokens / max(spent, 1e-3)  # the precision of the log
            line = {**line, "tokens": line["step"] * per_step, "tokens_per_s": rate}
            spent, trained = 0.0, line["step"]
        found.append(line)
    return found
