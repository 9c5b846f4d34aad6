"""A run of a ladder as a job: what to train, in which folder, and its result."""

import dataclasses
import hashlib
from functools import partial
from pathlib import Path

from mixit_titan.config.job import training_job
from mixit_titan.files import json_text
from mixit_titan.jobs.job import Job, Result
from mixit_titan.ladder.dial import WARMUP_SHARE
from mixit_titan.ladder.grid import LadderRun
from mixit_titan.ladder.scales import Scale
from mixit_titan.model.stack import as_folder
from mixit_titan.model.variants import find_stack
from mixit_titan.runtime.metrics import read_metrics

_CHECKPOINTS = 5
"""Checkpoints per run, at least: an interruption loses at most a fifth of it."""


def ladder_job(run: LadderRun, scale: Scale, vocab: int, out: Path) -> Job:
    """The training job of a run, in a folder that is named after all of its settings."""
    words = _words(run, scale, vocab)
    digest = hashlib.sha256(json_text([scale.config, *words]).encode()).hexdigest()[:12]
    job = training_job(
        scale.config,
        words,
        out / "runs" / f"{as_folder(run.stack)}_d{run.depth}_{digest}",
        name=run.name,
        steps=run.steps,
        nproc=1,
    )
    read = partial(_last_validation, steps=run.steps)
    return dataclasses.replace(job, kind=f"{run.flops:.1g} FLOPs", read=read)


def _words(run: LadderRun, scale: Scale, vocab: int) -> list[str]:
    """Everything that the dial sets, as words for `mixit-titan train`."""
    dial, rows = scale.dial, scale.dial.rows(run.depth)
    shape = dial.shape(run.depth, vocab)
    keys = ("width", "layers", "heads", "hidden", "vocab", "seq_len")
    values = {f"model.{key}": getattr(shape, key) for key in keys}
    values |= {
        "model.stack": run.stack,
        "data.path": scale.text,
        "training.seq_len": shape.seq_len,
        "training.global_batch_size": rows,
        "training.local_batch_size": scale.local_rows or rows,
        "training.steps": run.steps,
        "optimizer.lr": f"{dial.rate(run.depth):.6g}",
        "lr_scheduler.warmup_steps": max(1, round(WARMUP_SHARE * run.steps)),
        "lr_scheduler.decay_type": "linear",
        "lr_scheduler.min_lr_factor": 0.0,
        "validator.freq": run.steps,
        "validator.rows": scale.validation_rows,
        "checkpoint.interval": max(100, -(-run.steps // _CHECKPOINTS)),
        "debug.seed": run.seed,
        "data.seed": run.seed,
    }
    if find_stack(run.depth, stack=run.stack).drawn:
        values["model.mixing.seed"] = run.seed
    tied = ["--model.tied"] if dial.tied else []
    return [*tied, *(word for key, value in values.items() for word in (f"--{key}", str(value)))]


def _last_validation(folder: Path, *, steps: int) -> Result | None:
    """The validation after the last step, even if its loss is not finite: the run has ended."""
    for line in read_metrics(folder / "metrics.jsonl"):
        if line["step"] == steps and "validation_loss" in line:
            return line
    return None
