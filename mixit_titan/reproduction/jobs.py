"""The jobs behind the report: tasks, language models, analyses, the benchmark.

A folder is named after the settings of its job, so that a finished job is kept, and exhibits that
need the same job share it.
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
from mixit_titan.model.stack import as_folder, says_mixing
from mixit_titan.model.variants import VARIANTS
from mixit_titan.reading import json_if_good
from mixit_titan.reproduction.paper import TABLE_8
from mixit_titan.tasks.choice import FIRST_SEED, rank
from mixit_titan.tasks.job import task_job
from mixit_titan.tasks.options import field_names, preset_run, run_words
from mixit_titan.tasks.settings import Run

_SETTINGS = ("layers", "width", "heads", "lr", "batch", "steps", "seed")
"""The settings of a task's run that the report shows, besides its difficulty."""

SEEDS, FEWER_SEEDS, FEWEST_SEEDS = 8, 5, 3
"""The defaults at cpu scale, for slower jobs there, and for the slowest ones and at paper scale."""
FIRST_REPORTED = 400
"""Some seeds below this one were seen while settings were still being chosen."""
_CHOOSING = {"seed": FIRST_SEED, "held_out": "validation"}
_FEWER = ("retrieval", "dyck", "yelp", "language model")


@dataclass(frozen=True)
class Plan:
    """The options that all jobs depend on."""

    scale: Literal["cpu", "paper"]
    out: Path
    first_seed: int = FIRST_REPORTED
    seeds: int | None = None
    """None: the default of each kind of job."""
    steps: int | None = None
    search: bool = True
    text: str | None = None
    reviews: Path | None = None
    about_reviews: str = ""
    """What the report says about the reviews, or why there are none."""
    failed: frozenset[Path] = frozenset()
    """Folders of failed jobs, which a search ignores."""

    def seeds_of(self, kind: str) -> range:
        """The seeds of a kind of job."""
        cpu = FEWER_SEEDS if kind in _FEWER else SEEDS
        count = self.seeds or (FEWEST_SEEDS if self.scale == "paper" else cpu)
        return range(self.first_seed, self.first_seed + count)

    def with_fewer_seeds(self, most: int) -> "Plan":
        """The plan with at most `most` seeds, unless the user asked for more."""
        return dataclasses.replace(self, seeds=self.seeds or min(most, len(self.seeds_of(""))))


def task_grid(plan: Plan, task: str, variant: str, **fixed: Any) -> tuple[tuple[Job, ...], ...]:
    """The runs of one result: the preset, changed by `fixed`, with all seeds. At paper scale, the
    settings come from a search over the grid of Table 8, on validation and with a seed that is not
    reported; until it is finished, its points are returned instead."""
    grid = TABLE_8.get(task, {}) if plan.scale == "paper" and plan.search else {}
    free = {key: values for key, values in grid.items() if key not in fixed}
    if not free:
        return (task_point(plan, task, variant, **fixed),)
    at = [fixed | dict(zip(free, v, strict=True)) for v in itertools.product(*free.values())]
    tried = [_task(plan, task, variant, place | _CHOOSING) for place in at]
    results = [job.result for job in tried]
    left = [
        job
        for job, result in zip(tried, results, strict=True)
        if result is None and job.folder not in plan.failed
    ]
    if left or not any(results):
        return tuple((job,) for job in tried)
    done = [(rank(result), place) for place, result in zip(at, results, strict=True) if result]
    _, best = max(done, key=lambda each: each[0])
    return (task_point(plan, task, variant, **best),)


def task_point(plan: Plan, task: str, variant: str, **options: Any) -> tuple[Job, ...]:
    """One run per seed, at the preset changed by `options`."""
    seeds = plan.seeds_of(task)
    return tuple(_task(plan, task, variant, options | {"seed": seed}) for seed in seeds)


def stack_point(plan: Plan, task: str, stack: str, **options: Any) -> tuple[Job, ...]:
    """One run per seed, for a stack as it is written on a command line. It takes the preset alone,
    without settings that were chosen for some variant, since stacks are compared with each
    other."""
    preset = preset_run(task, plan.scale, ["--stack", stack], chosen=False)
    preset = dataclasses.replace(preset, settings=dataclasses.replace(preset.settings, stack=stack))
    seeds = plan.seeds_of(task)
    return tuple(_task(plan, task, stack, options | {"seed": s}, preset) for s in seeds)


def _task(
    plan: Plan, task: str, variant: str, options: dict[str, Any], preset: Run | None = None
) -> Job:
    """The job of one run. `preset` is the variant's own unless it is given."""
    if plan.steps is not None:
        options = options | {"steps": plan.steps}
    if task == "yelp" and plan.reviews is not None:
        options = options | {"csv": str(plan.reviews)}
    preset = preset or preset_run(task, plan.scale, ["--variant", variant])
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
    """A language model from a file of train_configs, validated after its last step. `variant` is
    the name of a variant, or a stack as it is written on a command line."""
    key = "--model.variant" if variant in VARIANTS else "--model.stack"
    words = [key, variant, "--debug.seed", str(seed), "--training.steps", str(steps)]
    words += ["--validator.freq", str(steps), "--validator.rows", "-1"]
    if says_mixing(variant):
        words += ["--model.mixing.seed", str(seed)]
    ranks = [] if nproc is None else ["--nproc", str(nproc)]
    job = training_job(
        config,
        [*words, *own],
        plan.out / "language" / f"{as_folder(variant)}_{_digest([config, *words, *ranks, *own])}",
        name=f"language model {variant} seed {seed}",
        steps=steps,
        nproc=nproc,
        alone=plan.scale == "paper",  # it uses all GPUs of the machine
        settings={"task": "language model", "steps": steps, "seed": seed, **settings},
    )
    return dataclasses.replace(job, read=partial(_with_bits, job.read))


def _with_bits(read: Callable[[Path], Result | None], folder: Path) -> Result | None:
    """The validation, if it has bits per byte; those of the first versions do not."""
    found = read(folder)
    return found if found and isinstance(found.get("bits_per_byte"), float) else None


def benchmark(plan: Plan, variants: Sequence[str], options: dict[str, Any]) -> Job:
    """A `mixit-titan bench` of some variants, which runs alone on the machine."""
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
    """A `mixit-titan analyze` of a run that another job trains. It is done once its JSON has this
    `form` and is `complete`."""
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
    found = json_if_good(folder / "bench.json", _ROUNDS)
    if found is None or not {*variants} <= {row["variant"] for row in found["variants"]}:
        return None
    return found


_ROUNDS = MEASURED | {"variants": [MEASURED["variants"][0] | {"round_seconds": [float]}]}


def training_words(job: Job, plan: Plan) -> list[str] | None:
    """What to type after `mixit-titan` for a job that trains. None for other jobs, which are quick
    or need the machine to themselves."""
    match job.arguments:
        case Run() as run, folder:
            return ["task", *run_words(run, plan.scale), "--out", str(folder)]
        case str() as config, overrides, nproc:
            ranks = [] if nproc is None else ["--nproc", str(nproc)]
            return ["train", config, *ranks, *overrides]
    return None


def _digest(words: Sequence[str]) -> str:
    return hashlib.sha256(json_text(words).encode()).hexdigest()[:12]
