"""`mixit-titan reproduce`: the paper's tables and figures again, at the scale of the machine."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console

from mixit_titan.config.job import TRAINING_MODULES
from mixit_titan.device import check_device
from mixit_titan.errors import ConfigError
from mixit_titan.jobs.job import Job
from mixit_titan.jobs.lock import locked
from mixit_titan.jobs.runner import Runner
from mixit_titan.ranges import COUNT, Range
from mixit_titan.reproduction.exhibit import Cells, Exhibit, jobs_of
from mixit_titan.reproduction.exhibits import EXHIBITS, find_exhibits
from mixit_titan.reproduction.jobs import Plan, training_words
from mixit_titan.reproduction.report import summary, write_report
from mixit_titan.tables import screen_table
from mixit_titan.tasks.job import TASK_MODULES


@dataclass(frozen=True, kw_only=True)
class ReproduceArguments:
    """Run what the paper's tables and figures need, and write them beside the paper's figures.

    Example: mixit-titan reproduce --scale cpu --only table1,figure2 --out runs/reproduce
    """

    scale: Literal["cpu", "paper"] = "cpu"
    """The presets of the tasks: sizes for two cores, or those of the paper."""
    only: tuple[str, ...] = ()
    """table1 ... table7, figure2, figure3, throughput (default: all): nothing else is run, nor
    reported."""
    seeds: Annotated[int, Range(least=1, most=10_000)] = 1
    """Every figure is the mean over the seeds 0, 1, ..."""
    jobs: Annotated[int, Range(least=1, most=4096)] = 2
    """Processes at a time. The benchmark runs alone, at the end."""
    text: str | None = None
    """What language models are trained on at cpu scale: a text file, a folder of them, or one that
    mixit-titan prepare wrote (default: the sources of Python's standard library)."""
    reviews: Path | None = None
    """A CSV file of reviews with the columns label and text, for Yelp. Without it the hub's set at
    paper scale, and none at cpu scale."""
    search: bool = True
    """At paper scale: all settings of Table 8. --no-search: those of Table 9."""
    steps: Annotated[int | None, COUNT] = None
    """Train everything so many steps only: a rehearsal, which proves nothing."""
    list: bool = False
    """Print the commands of all trainings that are not done, instead of running them: a line each,
    for slurm/points.sbatch."""
    out: Path = Path("runs/reproduce")

    def check(self) -> None:
        for key in ("seeds", "jobs", "steps"):
            if getattr(self, key) is not None and getattr(self, key) < 1:
                raise ConfigError(f"--{key} is {getattr(self, key)}: it must be at least 1")
        if self.text is not None and self.scale != "cpu":
            raise ConfigError("--text is for --scale cpu: train_configs name the paper's corpora")
        if self.text is not None and not Path(self.text).exists():
            raise ConfigError(f"--text {self.text!r} does not exist: name a file or a folder")
        if self.reviews is not None and not self.reviews.is_file():
            raise ConfigError(f"--reviews {str(self.reviews)!r} is not a file: name a CSV file")


def run_reproduce(args: ReproduceArguments) -> None:
    args.check()
    named = [name for words in args.only for name in words.split(",")]
    keys = ("scale", "out", "seeds", "steps", "search", "text", "reviews")
    plan = Plan(**{key: getattr(args, key) for key in keys})
    wanted = find_exhibits(named or [*EXHIBITS])
    planned = {exhibit.id: (exhibit, exhibit.cells(plan)) for exhibit in wanted}
    jobs = [job for _, cells in planned.values() for job in jobs_of(cells)]
    if args.list:
        _print_trainings(plan, {job.folder: job for job in jobs})
        return
    check_device()
    with locked(args.out):
        modules = dict.fromkeys([*TASK_MODULES, *TRAINING_MODULES])
        _run(plan, planned, Runner(jobs, at_a_time=args.jobs, preload=[*modules]))


def _run(plan: Plan, planned: dict[str, tuple[Exhibit, Cells]], runner: Runner) -> None:
    def ended(job: Job) -> None:
        """After the last job of an exhibit the report is written."""
        for _, cells in planned.values():
            folders = {each.folder for each in jobs_of(cells)}
            if job.folder in folders and not folders & runner.left:
                write_report(plan, planned, runner.failed)
                return

    write_report(plan, planned, ())
    try:
        runner.run(ended)
    finally:
        found = write_report(plan, planned, runner.failed)
    _show(found, plan.out)
    runner.raise_if_failed()


def _print_trainings(plan: Plan, jobs: dict[Path, Job]) -> None:
    for job in jobs.values():
        words = training_words(job, plan)
        if words is not None and job.result is None:
            print(shlex.join(words))


def _show(found: dict, out: Path) -> None:
    header = ("claim", "verdict", "ours")
    rows = [(claim["id"], claim["verdict"], claim["ours"]) for claim in found["claims"]]
    title = "Does the paper's claim hold here?"
    console = Console()
    console.print(screen_table(title, header, rows, left=len(header), title_justify="left"))
    console.print(summary(found))
    for name in ("report.html", "report.md", "report.json"):
        console.print(f"wrote {out / name}", soft_wrap=True)
