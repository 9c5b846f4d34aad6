"""`mixit-titan sweep TASK`: a grid of settings for some variants and seeds, as one command.

Every point is a run of the task in its own process, in a folder named by a hash of its settings: a
finished one is kept, any other resumes from its checkpoint or starts over.
"""

import itertools
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from mixit_titan import __version__
from mixit_titan.errors import ConfigError
from mixit_titan.fields import Group
from mixit_titan.files import write_json
from mixit_titan.jobs.job import Job, Result
from mixit_titan.jobs.lock import locked
from mixit_titan.jobs.runner import Runner
from mixit_titan.model.variants import VARIANTS
from mixit_titan.options import check_once, option_types, read_known_options, read_options, typed
from mixit_titan.ranges import Range
from mixit_titan.tasks.choice import FIRST_SEED, RULE, describe_choice, with_keys
from mixit_titan.tasks.command import find_device
from mixit_titan.tasks.grid import fixed_words, option_words, read_grid
from mixit_titan.tasks.job import TASK_MODULES, result_row, task_job
from mixit_titan.tasks.loop import extra_figures
from mixit_titan.tasks.models import model_config
from mixit_titan.tasks.options import parse, preset_run, typed_settings
from mixit_titan.tasks.settings import Run, Settings
from mixit_titan.tasks.sweep_report import write_report
from mixit_titan.tasks.task import task_class

_PROG = "mixit-titan sweep"


@dataclass(frozen=True, kw_only=True)
class SweepArguments:
    """Train a grid of settings of a task, compare the variants, and draw a figure.

    Example: mixit-titan sweep retrieval --variants mixit frozen_qk --grid pairs=2,4,8 --seeds 3
    Example: mixit-titan sweep retrieval --variants mixit frozen_qk --grid lr=1e-3,3e-3 --choose
    """

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """A task of `mixit-titan task`, such as addition, retrieval or hop."""
    variants: Annotated[tuple[str, ...], Group("points of the grid")] = tuple(VARIANTS)
    """Variants to train."""
    grid: tuple[str, ...] = ()
    """key=value,value ... for any options of the task. The first key is the x axis of the
    figure."""
    fixed: Annotated[tuple[str, ...], tyro.conf.arg(name="set")] = ()
    """key=value ... for options that differ from the preset at all points."""
    preset: Literal["cpu", "paper"] = "cpu"
    """Preset that all other settings come from: sizes for two CPU cores, or those of the paper."""
    seeds: Annotated[int, Range(least=1, most=FIRST_SEED)] = 1
    """Number of seeds: every point is trained with the seeds 0, 1, ..."""
    choose: Annotated[bool, Group("choosing settings")] = False
    """Choose the settings of each variant on validation, with the seeds 10000, 10001, ..., starting
    from the values that all variants of the preset share, and write choice.json."""
    jobs: Annotated[int, Range(least=1, most=4096), Group("execution and output")] = 1
    """Points to train at the same time."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on; auto is the GPU if there is one."""
    out: Path = Path("runs/sweep")
    """Folder for sweep.json, sweep.md and sweep.png, and for one folder per run."""

    @property
    def all_seeds(self) -> range:
        first = FIRST_SEED if self.choose else 0
        return range(first, first + self.seeds)


@dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    run: Run
    axes: dict[str, str]
    """Its place in the grid, as the user wrote it."""

    def job(self, args: SweepArguments) -> Job:
        """Return the job that trains this point."""
        settings = self.run.settings
        place = [f"{key}={value}" for key, value in self.axes.items()]
        return task_job(
            self.run,
            args.out / self.run.hash,
            name=" ".join([settings.name, *place, f"seed {settings.seed}"]),
            device=args.device,
        )

    def row(self, result: Result) -> dict[str, Any]:
        """Return the point's row of the report."""
        row = result_row(self.run.hash, result)
        return {**row, "axes": self.axes, **extra_figures(result)}


def sweep_command(arguments: list[str]) -> None:
    """Train every point of the grid, and report what came out."""
    check_once(arguments, ("--variants", "--grid", "--set"))
    args = _read(arguments)
    task_class(args.task)
    with typed(typed_settings(read_grid(args.grid), variant="--variants")):
        points = grid_points(args)
    find_device(args.device)  # checked before any point fails for lack of it
    with locked(args.out):
        jobs = [point.job(args) for point in points]
        runner = Runner(jobs, at_a_time=args.jobs, preload=TASK_MODULES)
        runner.run()
        found = [(point, job.result) for point, job in zip(points, jobs, strict=True)]
        rows = [point.row(result) for point, result in found if result is not None]
        if rows:
            write_report(args.task, list(read_grid(args.grid)), rows, args.out, Console())
        if args.choose and len(rows) == len(points):
            _write_choice(args, points, rows)
    runner.raise_if_failed()


def _read(arguments: list[str]) -> SweepArguments:
    try:
        return read_options(SweepArguments, arguments, prog=_PROG)
    except ConfigError:
        _refuse_option_of_task(arguments)
        raise


def _refuse_option_of_task(arguments: list[str]) -> None:
    """Say what to type in place of an option of the task itself, such as --steps."""
    args, rest = read_known_options(SweepArguments, arguments, prog=_PROG, checked=False)
    name, equals, value = (rest or [""])[0].partition("=")
    run = Run(task=task_class(args.task)(), settings=Settings())
    hint = dict(option_types(run)).get(name)
    if hint is not None and name not in ("--variant", "--seed"):  # here --variants and --seeds
        key = name.removeprefix("--")
        if hint is bool:
            value = "false" if key.startswith("no-") else "true"
            key = key.removeprefix("no-")
        elif not equals:
            value = next((word for word in rest[1:2] if not word.startswith("--")), "VALUE")
        said = shlex.quote(f"{key.replace('-', '_')}={value}")
        raise ConfigError(
            f"{name} is an option of the task: use --set {said}, or --grid for several values"
        )


def grid_points(args: SweepArguments) -> list[Point]:
    """Return all combinations, each one checked before the first is trained."""
    grid, fixed = read_grid(args.grid), read_grid(args.fixed)
    for key in ("variant", "seed"):
        if key in grid | fixed:
            raise ConfigError(f"{key!r} is not for --grid and --set: use --{key}s")
    if args.choose and "held_out" in grid | fixed:
        raise ConfigError("'held_out' is not for --grid and --set: --choose always uses validation")
    base = fixed_words(fixed)
    points = {}
    # A stack or a mixer takes the place of the variant.
    instead = [key for key in ("stack", "mixer") if key in grid | fixed]
    named = ("standard",) if instead else args.variants
    if named != args.variants != SweepArguments.variants:
        raise ConfigError(
            f"--variants and {instead[0]}: leave one of them out, since a variant is a stack too"
        )
    for variant in named:
        for values in itertools.product(*grid.values()):
            axes = dict(zip(grid, values, strict=True))
            words = base + [word for item in axes.items() for word in option_words(*item)]
            for seed in args.all_seeds:
                all_words = ["--variant", variant, *words, "--seed", str(seed)]
                all_words += ["--held-out", "validation"] if args.choose else []
                default = preset_run(args.task, args.preset, all_words, chosen=not args.choose)
                run = parse(Run[task_class(args.task)], default, args.task, all_words).named()
                run.check()
                model_config(run)
                points[run.hash] = Point(run, axes)
    return list(points.values())


def _write_choice(args: SweepArguments, points: list[Point], rows: list[dict[str, Any]]) -> None:
    keys = list(read_grid(args.grid))
    described = {point.run.hash: with_keys(point.run, keys) for point in points}
    values = {key: list(dict.fromkeys(found[key] for found in described.values())) for key in keys}
    choice = {
        "task": args.task,
        "preset": args.preset,
        "version": __version__,
        "rule": RULE,
        "held_out": "validation",
        "seeds": list(args.all_seeds),
        "grid": values,
        "variants": describe_choice(rows, described, keys),
    }
    write_json(args.out / "choice.json", choice)
    Console().print(f"wrote {args.out / 'choice.json'}", soft_wrap=True)
