"""What is run for the report: tasks, language models, analyses, the benchmark.

A folder is named after what is run in it, so that a finished job is kept, and two exhibits that
need the same one share it.
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mixit_titan.analysis.command import AnalyzeArguments, run_analyze
from mixit_titan.bench.arguments import BenchArguments
from mixit_titan.bench.command import run_bench
from mixit_titan.bench.form import MEASURED
from mixit_titan.config.job import training_job
from mixit_titan.files import json_text
from mixit_titan.jobs.job import Job, Result
from mixit_titan.json_form import Form
from mixit_titan.reading import json_if_good
from mixit_titan.reproduction.paper import TABLE_8
from mixit_titan.tasks.job import task_job
from mixit_titan.tasks.options import field_names, preset_run, run_words
from mixit_titan.tasks.settings import Run

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
    described = run.described()
    return task_job(
        run,
        plan.out / "tasks" / run.hash,
        name=" ".join([task, variant, *(f"{key} {value}" for key, value in options.items())]),
        settings={
            key: described[key] for key in ("task", *field_names(type(run.task)), *_SETTINGS)
        },
    )


def training(
    plan: Plan,
    config: str,
    variant: str,
    *own: str,
    seed: int,
    steps: int,
    settings: dict[str, Any],
    nproc: int | None = None,
) -> Job:
    """A language model from a file of train_configs, validated after its last step."""
    words = ["--model.variant", variant, "--debug.seed", str(seed), "--training.steps", str(steps)]
    words += ["--validator.freq", str(steps), "--validator.rows", "-1"]
    ranks = [] if nproc is None else ["--nproc", str(nproc)]
    return training_job(
        config,
        [*words, *own],
        plan.out / "language" / f"{variant}_{_digest([config, *words, *ranks, *own])}",
        name=f"language model {variant} seed {seed}",
        steps=steps,
        nproc=nproc,
        alone=plan.scale == "paper",  # it takes all GPUs of the machine
        settings={"task": "language model", "steps": steps, **settings},
    )


def benchmark(plan: Plan, variants: Sequence[str], options: dict[str, Any]) -> Job:
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    folder = plan.out / "bench" / _digest(["--variants", *variants, *words])
    own = {key.replace("-", "_"): value for key, value in options.items()}
    return Job(
        folder=folder,
        name="throughput",
        kind="throughput",
        work=run_bench,
        arguments=(BenchArguments(variants=tuple(variants), out=folder, **own),),
        read=lambda folder: _read_bench(folder, variants),
        settings={"task": "bench", **options},
        alone=True,
    )


def analysis(
    kind: str,
    run: Job,
    folder: Path,
    form: Form,
    complete: Callable[[Result], bool] = lambda found: True,
) -> Job:
    """Of a run that another job trains. `form`, and whether it is `complete`: what is needed of the
    JSON that it writes."""
    return Job(
        folder=folder,
        name=f"{kind} of {run.name}",
        kind=kind,
        work=run_analyze,
        arguments=(AnalyzeArguments(kind, run.folder, folder),),
        read=lambda folder: _read_analysis(folder, kind, form, complete),
        settings=run.settings,
        after=(run,),
    )


def _read_analysis(
    folder: Path, kind: str, form: Form, complete: Callable[[Result], bool]
) -> Result | None:
    found = json_if_good(folder / f"{kind}.json", form)
    drawn = (folder / f"{kind}.png").is_file()
    return found if found is not None and drawn and complete(found) else None


def _read_bench(folder: Path, variants: Sequence[str]) -> Result | None:
    found = json_if_good(folder / "bench.json", MEASURED)
    if found is None or not {*variants} <= {row["variant"] for row in found["variants"]}:
        return None
    return found


def training_words(job: Job, plan: Plan) -> list[str] | None:
    """What to type after `mixit-titan` for a job that trains. None: the rest is quick, or is to be
    measured on a machine of its own."""
    match job.arguments:
        case Run() as run, folder:
            return ["task", *run_words(run, plan.scale), "--out", str(folder)]
        case str() as config, overrides, nproc:
            ranks = [] if nproc is None else ["--nproc", str(nproc)]
            return ["train", config, *ranks, *overrides]
    return None


def _digest(words: Sequence[str]) -> str:
    return hashlib.sha256(json_text(words).encode()).hexdigest()[:12]
