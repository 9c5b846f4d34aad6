"""A claim of the paper: a sentence that arithmetic decides, on the paper's figures and on ours.

Beside what it says of the order or the difference of figures, a claim needs some of them at a level
near the paper's: models that have learned nothing are alike, and in no order.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mixit_titan.reproduction.paper import Table
from mixit_titan.reproduction.units import Unit

Figures = Mapping[str, Mapping[str, float | None]]
"""Row -> column -> value; None: it is to be measured, and is not there yet."""

EVERY, FIRST, LAST = "every", "first", "last"
"""Columns of a level, where a row is measured over something."""


class Missing(Exception):
    """A figure that a claim is about is not there."""


@dataclass(frozen=True)
class Level:
    """A row is at least, or at most, at a value, in the column of that name or place."""

    row: str
    column: str
    unit: Unit
    least: float = -math.inf
    most: float = math.inf
    if_there: bool = False
    """Of a column that not every scale has: it is met where no row has that column."""

    @property
    def says(self) -> str:
        bound = (
            f"at least {self.unit.show(self.least)}"
            if self.most == math.inf
            else f"at most {self.unit.show(self.most)}"
        )
        places = {EVERY: " everywhere", FIRST: " at the first place", LAST: " at the last place"}
        return f"{self.row} {bound}{places.get(self.column, f' in {self.column}')}"

    def met(self, figures: Figures) -> bool:
        return all(self.least <= number <= self.most for number in self._values(figures))

    def _values(self, figures: Figures) -> list[float]:
        if self.if_there and all(self.column not in row for row in figures.values()):
            return []
        if self.column not in (EVERY, FIRST, LAST):
            return [value(figures, self.row, self.column)]
        values = list(along(figures, self.row).values())
        return {EVERY: values, FIRST: values[:1], LAST: values[-1:]}[self.column]


def at_least(
    table: Table, row: str, column: str, share: float, unit: Unit, *, place: str = ""
) -> Level:
    """A share of the paper's own figure. `place`: EVERY, FIRST or LAST instead of the column."""
    return Level(row, place or column, unit, least=share * table[row][column])


@dataclass(frozen=True)
class Effect:
    """The size of what a claim is about: a difference, or a ratio."""

    name: str
    of: Callable[[Figures], float]
    ratio: bool = False


@dataclass(frozen=True, kw_only=True)
class Claim:
    id: str
    says: str
    right: Callable[[Figures], bool]
    """Raises Missing, as all that is called with figures does."""
    shows: Callable[[Figures], str]
    """The figures that it is about."""
    effect: Effect
    needs: tuple[Level, ...] = ()
    in_paper: str | None = None
    """What the paper shows, where it prints no figures."""

    def is_right(self, figures: Figures) -> bool:
        return self.right(figures) and all(level.met(figures) for level in self.needs)


def value(figures: Figures, row: str, column: str) -> float:
    found = figures.get(row, {}).get(column)
    if found is None:
        raise Missing
    return found


def along(figures: Figures, row: str) -> dict[str, float]:
    """All columns of a row that is measured over something: two at least."""
    found = figures.get(row, {})
    if len(found) < 2:
        raise Missing
    return {column: value(figures, row, column) for column in found}


def join_names(rows: tuple[str, ...]) -> str:
    return " and ".join(rows)
