"""A table or a figure of the paper, and what it takes to reproduce it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from mixit_titan.jobs.job import Job, Result
from mixit_titan.reproduction.claims import Claim, Figures
from mixit_titan.reproduction.jobs import Plan
from mixit_titan.reproduction.measured import Measured
from mixit_titan.reproduction.paper import Table
from mixit_titan.reproduction.units import Unit
from mixit_titan.reproduction.verdicts import means_of
from mixit_titan.tasks.choice import FIRST_SEED


@dataclass(frozen=True)
class Cell:
    """One result of ours: a job per seed, or the points of a search that has to run first."""

    places: tuple[tuple[Job, ...], ...] = ()
    value: Callable[[Result], float | list[float]] = lambda result: result["accuracy"]
    """The value of a job's result; a list if the job itself repeats its measurement."""
    counted: float | None = None
    """A value that needs no job."""

    @property
    def jobs(self) -> list[Job]:
        """All jobs that it needs."""
        return [job for seeds in self.places for job in seeds]

    @property
    def searches(self) -> bool:
        """Whether these jobs choose the settings of the reported ones."""
        return any(job.settings.get("seed", 0) >= FIRST_SEED for job in self.jobs)

    @property
    def measured(self) -> Measured | None:
        """The result; None until all jobs are finished, as a result needs all of its seeds."""
        if self.counted is not None:
            return Measured({"counted": self.counted}, exact=True)
        results = [job.result for job in self.jobs]
        if self.searches or None in results or not results:
            return None
        if len(results) == 1 and isinstance(found := self.value(results[0]), list):
            return Measured({f"round {n}": each for n, each in enumerate(found, 1)})
        seeds = [str(job.settings["seed"]) for job in self.jobs]
        return Measured(dict(zip(seeds, map(self.value, results), strict=True)))


Cells = dict[str, dict[str, Cell]]
"""Row -> column -> result."""


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """A table or figure: the paper's values, our jobs, the claims, and how to draw it."""

    id: str
    title: str
    row: str
    """What the rows are."""
    column: str
    """What the columns are; for numbers, what they count."""
    units: dict[str, Unit]
    """The unit of each column; "all" for the others."""
    paper: Table
    claims: tuple[Claim, ...]
    cells: Callable[[Plan], Cells]
    draw: Callable[["Shown", Path], str | None]
    """Draws the figure and returns its alternative text; None if there is nothing to draw yet."""
    caption: str
    note: Callable[[Plan], str] = lambda plan: ""
    """What a reader has to know about the setting."""
    choices: tuple[Path, ...] = ()
    """At cpu scale: files of `sweep --choose` that replace the chosen settings of its task."""
    reviews: bool = False
    """Whether it includes reviews."""
    by_default: bool = True
    """Whether it runs without being named."""

    def unit(self, column: str) -> Unit:
        """The unit of a column."""
        return self.units.get(column) or self.units["all"]


@dataclass(frozen=True)
class Shown:
    """An exhibit with our results."""

    exhibit: Exhibit
    cells: Cells
    ours: dict[str, dict[str, Measured | None]]
    """Row -> column -> result; None: not measured yet."""

    @property
    def figures(self) -> Figures:
        """The means of our results."""
        return means_of(self.ours)

    @property
    def rows(self) -> list[str]:
        """The rows of the paper, then those that only we have."""
        return _union(self.exhibit.paper, self.ours)

    @property
    def columns(self) -> list[str]:
        """The columns of the paper and ours; numbers are sorted."""
        named = _union(
            *(row for table in (self.exhibit.paper, self.ours) for row in table.values())
        )
        return sorted(named, key=int) if all(name.isdigit() for name in named) else named


def jobs_of(cells: Cells) -> list[Job]:
    """All jobs that the cells need; those that others depend on come first."""
    found: dict[Path, Job] = {}
    for row in cells.values():
        for cell in row.values():
            for job in cell.jobs:
                found |= {each.folder: each for each in (*job.after, job)}
    return list(found.values())


def measure(exhibit: Exhibit, cells: Cells) -> Shown:
    """The exhibit with the results that its jobs have written so far."""
    ours = {
        row: {column: cell.measured for column, cell in columns.items()}
        for row, columns in cells.items()
    }
    return Shown(exhibit, cells, ours)


def _union(*names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for group in names for name in group))
