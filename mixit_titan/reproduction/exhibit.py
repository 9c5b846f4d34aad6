"""A table or a figure of the paper, and what it takes to make it again."""

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
    """One figure of ours: a job for each seed, or the places of a search that comes first."""

    places: tuple[tuple[Job, ...], ...] = ()
    value: Callable[[Result], float | list[float]] = lambda result: result["accuracy"]
    """Of a job; several, if the job itself repeats what it measures."""
    counted: float | None = None
    """What needs no job."""

    @property
    def jobs(self) -> list[Job]:
        return [job for seeds in self.places for job in seeds]

    @property
    def searches(self) -> bool:
        """Whether these jobs choose the settings of those that will be reported."""
        return any(job.settings.get("seed", 0) >= FIRST_SEED for job in self.jobs)

    @property
    def measured(self) -> Measured | None:
        """None until all jobs have a result: of some seeds alone there is no figure."""
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
"""Row -> column -> figure."""


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    id: str
    title: str
    row: str
    """What a row is."""
    column: str
    """What a column is; where they are numbers, what is counted."""
    units: dict[str, Unit]
    """Of each column, or of all under "all"."""
    paper: Table
    claims: tuple[Claim, ...]
    cells: Callable[[Plan], Cells]
    draw: Callable[["Shown", Path], str | None]
    """Draws the figure; returns what is to be seen in it, for those who do not see it; None where
    there is nothing to draw yet."""
    caption: str
    note: Callable[[Plan], str] = lambda plan: ""
    """What a reader must know of the setting."""
    choices: tuple[Path, ...] = ()
    """At cpu scale: what `sweep --choose` wrote for it, in the place of the choice of its task."""
    reviews: bool = False
    """Whether reviews belong to it."""
    by_default: bool = True
    """Whether it is run without being named."""

    def unit(self, column: str) -> Unit:
        return self.units.get(column) or self.units["all"]


@dataclass(frozen=True)
class Shown:
    """An exhibit with our figures."""

    exhibit: Exhibit
    cells: Cells
    ours: dict[str, dict[str, Measured | None]]
    """None: it is to be measured, and is not there."""

    @property
    def figures(self) -> Figures:
        return means_of(self.ours)

    @property
    def rows(self) -> list[str]:
        return _union(self.exhibit.paper, self.ours)

    @property
    def columns(self) -> list[str]:
        named = _union(
            *(row for table in (self.exhibit.paper, self.ours) for row in table.values())
        )
        return sorted(named, key=int) if all(name.isdigit() for name in named) else named


def jobs_of(cells: Cells) -> list[Job]:
    """All that they need, what others wait for first."""
    found: dict[Path, Job] = {}
    for row in cells.values():
        for cell in row.values():
            for job in cell.jobs:
                found |= {each.folder: each for each in (*job.after, job)}
    return list(found.values())


def measure(exhibit: Exhibit, cells: Cells) -> Shown:
    """What the folders of its jobs hold."""
    ours = {
        row: {column: cell.measured for column, cell in columns.items()}
        for row, columns in cells.items()
    }
    return Shown(exhibit, cells, ours)


def _union(*names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for group in names for name in group))
