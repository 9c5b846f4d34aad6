"""A table or a figure of the paper, and what it takes to make it again."""

import statistics
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from mixit_titan.jobs.job import Job, Result
from mixit_titan.reproduction.claims import Claim, Figures
from mixit_titan.reproduction.jobs import Plan
from mixit_titan.reproduction.paper import Table
from mixit_titan.reproduction.units import Unit


@dataclass(frozen=True)
class Cell:
    """One figure of ours: the best place of a grid, by its mean over the seeds."""

    places: tuple[tuple[Job, ...], ...] = ()
    value: Callable[[Result], float] = lambda result: result["accuracy"]
    counted: float | None = None
    """What needs no job."""

    @property
    def jobs(self) -> list[Job]:
        return [job for seeds in self.places for job in seeds]


@dataclass(frozen=True)
class Measured:
    mean: float
    std: float


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
    draw: Callable[["Shown", Path], str]
    """Draws the picture; returns what is to be seen in it, for those who do not see it."""
    caption: str
    note: Callable[[Plan], str] = lambda plan: ""
    """What a reader must know of the setting."""

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
        return {
            row: {column: found.mean if found else None for column, found in columns.items()}
            for row, columns in self.ours.items()
        }

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


def measure(exhibit: Exhibit, cells: Cells, failed: Collection[Path]) -> Shown:
    """What the folders of its jobs hold. The figure of a search waits until no job of it is left to
    run."""
    ours = {
        row: {column: _measured(cell, failed) for column, cell in columns.items()}
        for row, columns in cells.items()
    }
    return Shown(exhibit, cells, ours)


def _measured(cell: Cell, failed: Collection[Path]) -> Measured | None:
    if cell.counted is not None:
        return Measured(cell.counted, 0.0)
    places = []
    for seeds in cell.places:
        results = [job.result for job in seeds]
        done = [cell.value(result) for result in results if result is not None]
        if len(done) == len(seeds):
            places.append(done)
        elif not any(job.folder in failed for job in seeds):
            return None
    if not places:
        return None
    best = max(places, key=statistics.fmean)
    return Measured(statistics.fmean(best), statistics.stdev(best) if len(best) > 1 else 0.0)


def _union(*names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for group in names for name in group))
