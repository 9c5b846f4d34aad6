"""What is run for the report: tasks, language models, analyses, the benchmark.

A job is a command of mixit-titan with a folder of its own, so that a finished one is kept, and two
exhibits that need the same one share it.
"""

import dataclasses
import hashlib
import itertools
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mixit_titan.config.shipped import shipped_configs
from mixit_titan.errors import ConfigError
from mixit_titan.reproduction.paper import TABLE_8
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.tasks.loop import read_result
from mixit_titan.tasks.options import field_names, preset_run
from mixit_titan.tasks.settings import Run
from mixit_titan.tasks.sweep import is_finished

Result = dict[str, Any]

_SETTINGS = ("layers", "width", "heads", "lr", "batch", "steps")
"""Of a task's run, beside its difficulty: what the report says."""


@dataclass(frozen=True)
class Plan:
    """What all jobs depend on."""

    scale: Literal["cpu", "paper"]
    out: Path
    seeds: int = 1
    steps: int | None = None
    search: bool = True
    text: str | None = None
    reviews: Path | None = None


@dataclass(frozen=True)
class Job:
    words: tuple[str, ...]
    """Of the command line, after mixit-titan."""
    folder: Path
    name: str = field(compare=False)
    read: Callable[[Path], Result | None] = field(compare=False)
    """The result in the folder; None until it is finished."""
    settings: dict[str, Any] = field(compare=False)
    """What the report says of it."""
    after: tuple["Job", ...] = field(default=(), compare=False)
    alone: bool = field(default=False, compare=False)
    """Not beside other jobs, and after them."""
    mend: Callable[[Path], object] = field(default=lambda folder: None, compare=False)
    """Called before it is started: removes what a kill left that cannot go on."""

    @property
    def result(self) -> Result | None:
        return self.read(self.folder)

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"


def task_grid(plan: Plan, task: str, variant: str, **fixed: Any) -> tuple[tuple[Job, ...], ...]:
    """The points of a task for one figure: places of the grid, each with all its seeds. One place
    at the preset, changed by `fixed`; or at paper scale the grid of Table 8."""
    grid = TABLE_8.get(task, {}) if plan.scale == "paper" and plan.search else {}
    free = {key: values for key, values in grid.items() if key not in fixed}
    return tuple(
        task_point(plan, task, variant, **fixed, **dict(zip(free, values, strict=True)))
        for values in itertools.product(*free.values())
    )


def task_point(plan: Plan, task: str, variant: str, **options: Any) -> tuple[Job, ...]:
    """A run for each seed."""
    if plan.steps is not None:
        options["steps"] = plan.steps
    if task == "yelp" and plan.reviews is not None:
        options["csv"] = str(plan.reviews)
    return tuple(_task(plan, task, variant, options | {"seed": s}) for s in range(plan.seeds))


def _task(plan: Plan, task: str, variant: str, options: dict[str, Any]) -> Job:
    preset = preset_run(task, plan.scale, ["--variant", variant])
    own = {key: value for key, value in options.items() if key in field_names(type(preset.task))}
    rest = {key: value for key, value in options.items() if key not in own}
    run = Run(
        task=dataclasses.replace(preset.task, **own),
        settings=dataclasses.replace(preset.settings, **rest),
    )
    run.check()
    words = ["--preset", plan.scale, "--variant", variant]
    for key, value in options.items():
        words += [f"--{key.replace('_', '-')}", str(value)]
    folder = plan.out / "tasks" / run.hash
    described = run.described()
    return Job(
        words=("task", task, *words, "--out", str(folder)),
        folder=folder,
        name=" ".join([task, variant, *(f"{key} {value}" for key, value in options.items())]),
        read=_task_result,
        settings={
            key: described[key] for key in ("task", *field_names(type(run.task)), *_SETTINGS)
        },
        mend=is_finished,
    )


def _task_result(folder: Path) -> Result | None:
    try:
        return read_result(folder)
    except ConfigError:
        return None  # broken: it is made again


def training(
    plan: Plan,
    config: str,
    variant: str,
    *own: str,
    seed: int,
    steps: int,
    settings: dict[str, Any],
) -> Job:
    """A language model from a file of train_configs, validated after its last step."""
    words = ["--model.variant", variant, "--debug.seed", str(seed), "--training.steps", str(steps)]
    words += ["--validator.freq", str(steps), "--validator.rows", "-1", *own]
    folder = plan.out / "language" / f"{variant}_{_digest([config, *words])}"
    file = str(shipped_configs()[config])
    return Job(
        words=("train", file, *words, "--dump_folder", str(folder)),
        folder=folder,
        name=f"language model {variant} seed {seed}",
        read=lambda folder: _last_validation(folder, steps),
        settings={"task": "language model", "steps": steps, **settings},
        alone=plan.scale == "paper",  # it takes all GPUs of the machine
        mend=lambda folder: _remove_without_validation(folder, steps),
    )


def _last_validation(folder: Path, steps: int) -> Result | None:
    for line in read_metrics(folder / "metrics.jsonl"):
        if line["step"] == steps and "validation_loss" in line:
            return line
    return None


def _remove_without_validation(folder: Path, steps: int) -> None:
    """A run that was stopped after its last step and before its last validation has no more steps
    to do, and would never validate."""
    if (folder / "checkpoint" / f"step-{steps}").exists():
        shutil.rmtree(folder)


def benchmark(plan: Plan, *words: str, settings: dict[str, Any]) -> Job:
    folder = plan.out / "bench" / _digest(words)
    return Job(
        words=("bench", *words, "--out", str(folder)),
        folder=folder,
        name="throughput",
        read=lambda folder: read_json(folder / "bench.json"),
        settings=settings,
        alone=True,
    )


def analysis(kind: str, run: Job, folder: Path) -> Job:
    """Of a run that another job trains."""
    return Job(
        words=("analyze", kind, str(run.folder), "--out", str(folder)),
        folder=folder,
        name=f"{kind} of {run.name}",
        read=lambda folder: read_json(folder / f"{kind}.json"),
        settings=run.settings,
        after=(run,),
    )


def _digest(words: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:12]


def read_json(path: Path) -> Result | None:
    return json.loads(path.read_text()) if path.exists() else None
