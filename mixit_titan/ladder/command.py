"""`mixit-titan ladder`: what the variants come to as they grow."""

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console

from mixit_titan.config.job import TRAINING_MODULES
from mixit_titan.config.plan import vocabulary
from mixit_titan.data.sources import STDLIB
from mixit_titan.device import check_device
from mixit_titan.errors import ConfigError, RunFailed
from mixit_titan.files import write_json, write_text
from mixit_titan.jobs.job import Job
from mixit_titan.jobs.lock import locked
from mixit_titan.jobs.runner import Runner
from mixit_titan.ladder.forecast import changes, freeze, read_forecast, stamp
from mixit_titan.ladder.grid import LadderRun, plan_runs
from mixit_titan.ladder.jobs import ladder_job
from mixit_titan.ladder.markdown import markdown, notes, tables
from mixit_titan.ladder.points import read_points
from mixit_titan.ladder.report import Ladder, as_json, make_ladder
from mixit_titan.ladder.scales import SCALES, Scale
from mixit_titan.ranges import Range
from mixit_titan.tables import literal, screen_table

_FILES = ("ladder.json", "ladder.md", "ladder.png")


@dataclass(frozen=True, kw_only=True)
class LadderArguments:
    """Train each stack at several sizes and budgets, fit how its loss falls, and say what the gap
    to standard does with scale. A finished run is kept, an interrupted one resumes.

    Example: mixit-titan ladder --scale cpu --forecast --out runs/ladder
             mixit-titan ladder --scale cpu --out runs/ladder
    """

    scale: Literal["cpu", "gpu"] = "cpu"
    """Sizes for two CPU cores in about an hour, or for an array of single GPUs."""
    stacks: tuple[str, ...] = ()
    """Variants and stacks, each in quotes (default: those of the scale)."""
    depths: Annotated[tuple[int, ...], Range(least=1, most=200)] = ()
    """The dial: sizes follow from depths (docs/scaling.md). Default: those of the scale."""
    tokens_per_parameter: Annotated[float | None, Range(above=0, most=1e6)] = None
    """Of the rungs, one run of each depth (default: that of the scale)."""
    budgets: Annotated[tuple[float, ...] | None, Range(above=0, most=1e30)] = None
    """FLOPs of the IsoFLOP runs (default: those of the scale)."""
    text: str | None = None
    """A text file, a folder of them, or one that mixit-titan prepare wrote."""
    seeds: Annotated[int, Range(least=1, most=100)] = 1
    """Runs of each size and budget."""
    jobs: Annotated[int, Range(least=1, most=4096)] = 2
    """Processes at a time."""
    forecast: bool = False
    """Make all runs but those of the last rung, and freeze a forecast of these. The same command
    without it makes them."""
    list: bool = False
    """Print the commands of all runs that are not done, one line each, for slurm/points.sbatch,
    instead of running them."""
    report: bool = False
    """Report what is done, and start nothing: after an array, or while it runs."""
    out: Path = Path("runs/ladder")

    def chosen(self) -> Scale:
        """The scale with what the options change."""
        scale = SCALES[self.scale]
        for flag in ("stacks", "depths", "budgets"):
            found = getattr(self, flag)
            if found and len(set(found)) < len(found):
                raise ConfigError(f"--{flag} names one of them twice: leave it out")
        if self.list and self.report:
            raise ConfigError("--list prints commands and --report reports: leave one of them out")
        if self.text is not None and self.text != STDLIB and not Path(self.text).exists():
            raise ConfigError(f"--text {self.text!r} does not exist: name a file or a folder")
        given = {
            "stacks": self.stacks or None,
            "depths": tuple(sorted(self.depths)) or None,
            "tokens_per_parameter": self.tokens_per_parameter,
            "budgets": self.budgets,
            "text": self.text,
        }
        changed = {key: value for key, value in given.items() if value is not None}
        return dataclasses.replace(scale, **changed)


@dataclass(frozen=True)
class Plan:
    args: LadderArguments
    scale: Scale
    vocab: int
    runs: list[tuple[LadderRun, Job]]

    @property
    def largest(self) -> list[tuple[LadderRun, Path]]:
        return [(run, job.folder) for run, job in self.runs if run.largest]

    def to_make(self) -> list[Job]:
        return [job for run, job in self.runs if not (self.args.forecast and run.largest)]


def run_ladder(args: LadderArguments) -> None:
    scale = args.chosen()
    vocab = vocabulary([scale.text], scale.vocab)
    runs = plan_runs(scale, vocab, args.seeds)
    plan = Plan(
        args, scale, vocab, [(run, ladder_job(run, scale, vocab, args.out)) for run in runs]
    )
    if not (args.list or args.report):
        check_device()
    with locked(args.out):
        _check_forecast(plan)
        if args.list:
            _print_runs(plan)
            return
        _make_and_report(plan)


def _check_forecast(plan: Plan) -> None:
    """What is frozen stays, and what is made cannot be forecast."""
    if not plan.args.forecast:
        return
    found = read_forecast(plan.args.out)
    if found is not None:
        raise ConfigError(
            f"{plan.args.out / 'forecast.json'} was frozen at {found['date']}: the same command "
            "without --forecast makes the largest runs"
        )
    for run, folder in plan.largest:
        if (folder / "metrics.jsonl").exists():
            raise ConfigError(
                f"--forecast comes too late: {run.name} has been started ({folder}). Name another "
                "--out, or leave --forecast out"
            )


def _print_runs(plan: Plan) -> None:
    _stamp(plan)
    for job in plan.to_make():
        if job.result is None:
            config, overrides, nproc = job.arguments
            print(shlex.join(["train", config, "--nproc", str(nproc), *overrides]))


def _stamp(plan: Plan) -> None:
    forecast = read_forecast(plan.args.out)
    if forecast is not None:
        stamp(forecast, [folder for _, folder in plan.largest])


def _make_and_report(plan: Plan) -> None:
    failed: dict[Path, int] = {}
    runner = None
    if not plan.args.report:
        _stamp(plan)
        runner = Runner(plan.to_make(), at_a_time=plan.args.jobs, preload=TRAINING_MODULES)
        failed = runner.failed
        try:
            runner.run()
        except BaseException:
            _report(plan, failed)
            raise
    ladder = _report(plan, failed)
    if plan.args.forecast and not failed:
        _check_complete(plan)
        freeze(plan.args.out, ladder.fits, ladder.points, plan.largest)
        ladder = _report(plan, failed)
    _show(plan, ladder)
    if runner is not None:
        runner.raise_if_failed()
    if ladder.changes:
        raise RunFailed(f"the forecast does not count: {ladder.changes[0]}")


def _check_complete(plan: Plan) -> None:
    """A forecast cannot be made again, so it is not made from a part of the runs."""
    missing = [job.name for job in plan.to_make() if job.result is None]
    if missing:
        raise ConfigError(
            f"--forecast needs all runs but the largest, and {len(missing)} of them have not "
            f"ended, {missing[0]} among them: run the same command again"
        )


def _report(plan: Plan, failed: dict[Path, int]) -> Ladder:
    """Of what is done. A forecast that is there is compared with what came of it."""
    from mixit_titan.ladder.figure import draw

    out = plan.args.out
    points, left_out = read_points(plan.runs, failed)
    forecast = read_forecast(out)
    ladder = make_ladder(
        plan.args.scale,
        plan.scale,
        plan.vocab,
        [run for run, _ in plan.runs],
        points,
        left_out,
        forecast,
        changes(forecast, points, plan.largest) if forecast else (),
    )
    write_json(out / "ladder.json", as_json(ladder))
    write_text(out / "ladder.md", markdown(ladder))
    draw(ladder, out / "ladder.png")
    return ladder


def _show(plan: Plan, ladder: Ladder) -> None:
    console = Console(width=None if Console().is_terminal else 160)
    for title, header, rows in tables(ladder):
        console.print(screen_table(title, header, [map(literal, row) for row in rows]))
    for note in notes(ladder):
        console.print(literal(note), soft_wrap=True, highlight=False)
    written = (*_FILES, "forecast.json") if plan.args.forecast else _FILES
    for name in written:
        console.print(f"wrote {plan.args.out / name}", soft_wrap=True)
    console.print(_next(plan, ladder), soft_wrap=True)


def _next(plan: Plan, ladder: Ladder) -> str:
    if plan.args.forecast:
        return (
            "Keep the SHA-256 somewhere else too. The same command without --forecast makes the "
            "largest runs, and shows them beside the forecast."
        )
    if ladder.left_out:
        made = "without --report makes" if plan.args.report else "tries again to make"
        return f"The same command {made} what is missing."
    return f"--seeds {plan.args.seeds + 1} adds runs to these, and narrows the intervals."
