"""`mixit-titan reproduce`: the paper's tables and figures again, at the scale of the machine."""

import fcntl
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from mixit_titan.errors import ConfigError, RunFailed
from mixit_titan.files import make_folder
from mixit_titan.reproduction.exhibit import jobs_of
from mixit_titan.reproduction.exhibits import EXHIBITS, find_exhibits
from mixit_titan.reproduction.jobs import Job, Plan
from mixit_titan.reproduction.report import summary, write_report
from mixit_titan.reproduction.scheduler import Scheduler
from mixit_titan.tables import screen_table


@dataclass(frozen=True, kw_only=True)
class ReproduceArguments:
    """Run what the paper's tables and figures need, and write them beside the paper's figures.

    Example: mixit-titan reproduce --scale cpu --only table1,figure2 --out runs/reproduce
    """

    scale: Literal["cpu", "paper"] = "cpu"
    """The presets of the tasks: sizes for two cores, or those of the paper."""
    only: tuple[str, ...] = ()
    """table1 ... table7, figure2, figure3, throughput (default: all)."""
    seeds: int = 1
    """Every figure is the mean over the seeds 0, 1, ..."""
    jobs: int = 2
    """Processes at a time. The benchmark runs alone, at the end."""
    text: str | None = None
    """What language models are trained on at cpu scale: a text file, a folder of them, or one that
    mixit-titan prepare wrote (default: the sources of Python's standard library)."""
    reviews: Path | None = None
    """A CSV file of reviews with the columns label and text, for Yelp. Without it the hub's set at
    paper scale, and none at cpu scale."""
    search: bool = True
    """At paper scale: all settings of Table 8. --no-search: those of Table 9."""
    steps: int | None = None
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
    wanted = find_exhibits(named or [*EXHIBITS])
    keys = ("scale", "out", "seeds", "steps", "search", "text", "reviews")
    plan = Plan(**{key: getattr(args, key) for key in keys})
    planned = {exhibit.id: (exhibit, exhibit.cells(plan)) for exhibit in EXHIBITS.values()}
    jobs: dict[Path, Job] = {}
    for exhibit in wanted:
        jobs |= {job.folder: job for job in jobs_of(planned[exhibit.id][1])}
    if args.list:
        _print_trainings([*jobs.values()])
        return
    make_folder(args.out)
    console = Console(stderr=True)
    with _only_one_in(args.out):
        scheduler = Scheduler([*jobs.values()], args.jobs, console)
        _run(plan, planned, scheduler, console)


def _run(plan: Plan, planned: dict, scheduler: Scheduler, console: Console) -> None:
    def ended(job: Job) -> None:
        """After the last job of an exhibit the report is written."""
        left = {each.folder for each in scheduler.waiting}
        left |= {running.job.folder for running in scheduler.running}
        for _, cells in planned.values():
            folders = {each.folder for each in jobs_of(cells)}
            if job.folder in folders and not folders & left:
                write_report(plan, planned, scheduler.failed)
                return

    write_report(plan, planned, set())
    try:
        scheduler.run(ended)
    except KeyboardInterrupt:
        console.print("Interrupted. Run the same command to go on")
        raise
    finally:
        found = write_report(plan, planned, scheduler.failed)
    _show(found, plan.out)
    if scheduler.failed:
        raise RunFailed(
            f"{len(scheduler.failed)} of {len(scheduler.jobs)} jobs failed: "
            f"{plan.out / 'report.md'} names their logs"
        )


def _print_trainings(jobs: list[Job]) -> None:
    """The rest is quick, or is to be measured on a machine of its own."""
    for job in jobs:
        if job.words[0] in ("task", "train") and job.result is None:
            print(shlex.join(job.words))


@contextmanager
def _only_one_in(out: Path) -> Iterator[None]:
    """Two would train in the same folders."""
    with (out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another mixit-titan reproduce runs in {out}: wait for it, or choose another --out"
            ) from None
        yield


def _show(found: dict, out: Path) -> None:
    header = ("claim", "verdict", "ours")
    rows = [(claim["id"], claim["verdict"], claim["ours"]) for claim in found["claims"]]
    title = "Does the paper's claim hold here?"
    console = Console()
    console.print(screen_table(title, header, rows, left=len(header), title_justify="left"))
    console.print(summary(found))
    for name in ("report.html", "report.md", "report.json"):
        console.print(f"wrote {out / name}", soft_wrap=True)
