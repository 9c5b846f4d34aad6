"""`mixit-titan ladder`: how the loss of each variant scales."""

import dataclasses
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console

from mixit_titan.config.job import TRAINING_MODULES
from mixit_titan.config.plan import vocabulary
from mixit_titan.data.bigram import bigram_loss
from mixit_titan.data.sources import STDLIB
from mixit_titan.device import check_device
from mixit_titan.errors import ConfigError, RunFailed
from mixit_titan.fields import Group
from mixit_titan.files import write_json, write_text
from mixit_titan.jobs.job import Job
from mixit_titan.jobs.lock import locked
from mixit_titan.jobs.runner import Runner
from mixit_titan.ladder.forecast import (
    changes,
    check_of_plan,
    freeze,
    read_forecast,
    signs_of_lost,
    stamp,
)
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
    """Train each stack at several sizes and budgets, fit scaling laws to its losses, and report
    whether its gap to standard closes or widens with scale. Finished runs are kept, interrupted
    ones resume.

    Example: mixit-titan ladder --scale cpu --forecast --out runs/ladder
             mixit-titan ladder --scale cpu --out runs/ladder
    """

    scale: Annotated[Literal["cpu", "gpu"], Group("what is trained")] = "cpu"
    """Sizes that take two CPU cores about an hour, or sizes for an array of single-GPU jobs."""
    stacks: tuple[str, ...] = ()
    """Variants, and stacks in quotes (default: those of the scale)."""
    depths: Annotated[tuple[int, ...], Range(least=1, most=200)] = ()
    """Numbers of layers; all other sizes follow from them (docs/scaling.md; default: those of the
    scale)."""
    tokens_per_parameter: Annotated[float | None, Range(above=0, most=1e6)] = None
    """Training tokens per parameter of the rungs, which are one run per depth (default: that of
    the scale)."""
    budgets: Annotated[tuple[float, ...] | None, Range(above=0, most=1e30)] = None
    """FLOPs of the IsoFLOP runs (default: those of the scale)."""
    text: Annotated[str | None, Group("training")] = None
    """A text file, a folder of text files, or a folder that mixit-titan prepare wrote (default:
    that of the scale)."""
    seeds: Annotated[int, Range(least=1, most=100)] = 1
    """Runs per size and budget; more seeds are added to finished runs."""
    jobs: Annotated[int, Range(least=1, most=4096), Group("how it runs")] = 2
    """How many runs train at the same time."""
    forecast: Annotated[bool, Group("what to do")] = False
    """Train all runs but those of the largest rung, and freeze a forecast of their losses. The same
    command without --forecast then trains them."""
    list: bool = False
    """Print the commands of all unfinished runs, one per line, for slurm/points.sbatch, instead of
    running them."""
    report: bool = False
    """Report the finished runs without starting any: after a job array, or while it runs."""
    out: Path = Path("runs/ladder")
    """Folder for the runs and the report."""

    def chosen(self) -> Scale:
        """The scale, with the changes that the options make to it."""
        scale = SCALES[self.scale]
        for flag in ("stacks", "depths", "budgets"):
            found = getattr(self, flag)
            if found and len(set(found)) < len(found):
                raise ConfigError(f"--{flag} has a value twice: give each one once")
        if self.list and self.report:
            raise ConfigError("--list and --report exclude each other: leave one of them out")
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
    """The runs of a ladder, as the command line asks for them."""

    args: LadderArguments
    scale: Scale
    vocab: int
    runs: list[tuple[LadderRun, Job]]

    @property
    def largest(self) -> list[tuple[LadderRun, Path]]:
        """The runs of the largest rung, which a forecast predicts, and their folders."""
        return [(run, job.folder) for run, job in self.runs if run.largest]

    def to_make(self) -> list[Job]:
        """The jobs of this call: with --forecast, all but those of the largest rung."""
        return [job for run, job in self.runs if not (self.args.forecast and run.largest)]


def run_ladder(args: LadderArguments) -> None:
    """Train what is missing of a ladder, then fit, report, and print what to type next."""
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
    """Refuse a forecast of another ladder, to replace a frozen one, or to forecast runs that have
    been started."""
    found = read_forecast(plan.args.out)
    if found is not None:
        check_of_plan(found, plan.args.out, plan.largest)
    if not plan.args.forecast:
        return
    if found is not None:
        raise ConfigError(
            f"{plan.args.out / 'forecast.json'} was frozen at {found['date']}: the same command "
            "without --forecast trains the largest runs"
        )
    for run, folder in plan.largest:
        if (folder / "metrics.jsonl").exists():
            raise ConfigError(
                f"--forecast comes too late: {run.name} has been started ({folder}); name another "
                "--out, or leave out --forecast"
            )


def _print_runs(plan: Plan) -> None:
    _stamp(plan)
    left = [job for job in plan.to_make() if job.result is None]
    for job in left:
        config, overrides, nproc = job.arguments
        print(shlex.join(["train", config, "--nproc", str(nproc), *overrides]))
    if not left:
        print("All of these runs are finished: --report reports them", file=sys.stderr)


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
        raise RunFailed(f"the forecast is invalid: {ladder.changes[0]}")


def _check_complete(plan: Plan) -> None:
    """Refuse to freeze a forecast, which cannot be repeated, before all smaller runs are done."""
    missing = [job.name for job in plan.to_make() if job.result is None]
    if missing:
        raise ConfigError(
            f"--forecast needs all runs but the largest, and {len(missing)} of them are "
            f"unfinished, such as {missing[0]}: run the same command again"
        )


def _report(plan: Plan, failed: dict[Path, int]) -> Ladder:
    """Write the report on all finished runs; a frozen forecast is compared with the results."""
    from mixit_titan.ladder.figure import draw

    out = plan.args.out
    points, left_out = read_points(plan.runs, failed)
    forecast = read_forecast(out)
    text, rows = plan.scale.text, plan.scale.validation_rows
    ladder = make_ladder(
        plan.args.scale,
        plan.scale,
        plan.vocab,
        [run for run, _ in plan.runs],
        points,
        left_out,
        bigram_loss(text, seq_len=plan.scale.dial.seq_len, rows=rows),
        forecast,
        changes(forecast, points, plan.largest) if forecast else signs_of_lost(plan.largest),
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
            "Next: keep a copy of the SHA-256 elsewhere, then run the same command without "
            "--forecast, which trains the largest runs and compares them with the forecast."
        )
    if ladder.left_out:
        how = " without --report" if plan.args.report else " again"
        return f"Next: run the same command{how} to train the runs that are missing."
    return (
        f"Next: run the same command with --seeds {plan.args.seeds + 1}, which adds runs and "
        "narrows the intervals."
    )
