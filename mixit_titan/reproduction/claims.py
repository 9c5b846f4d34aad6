"""A claim of the paper: a sentence that arithmetic decides, on the paper's results and on ours.

Besides the order or difference that it states, a claim requires some results to reach a level near
the paper's: models that have learned nothing do not differ, and their order means nothing.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mixit_titan.reproduction.paper import Table
from mixit_titan.reproduction.units import Unit

Figures = Mapping[str, Mapping[str, float | None]]
"""Row -> column -> value; None: not measured yet."""

EVERY, FIRST, LAST = "every", "first", "last"
"""Columns of a level, for a row that is measured over heads, depth or the like."""


class Missing(Exception):
    """A result that a claim is about has not been measured."""


@dataclass(frozen=True)
class Level:
    """A requirement: a row is at least, or at most, at some value in a column."""

    row: str
    column: str
    unit: Unit
    least: float = -math.inf
    most: float = math.inf
    if_there: bool = False
    """Whether the level counts as met if no row has the column, which not every scale has."""

    @property
    def says(self) -> str:
        """The requirement in words."""
        bound = (
            f"at least {self.unit.show(self.least)}"
            if self.most == math.inf
            else f"at most {self.unit.show(self.most)}"
        )
        places = {EVERY: "every column", FIRST: "the first column", LAST: "the last column"}
        return f"{self.row} {bound} in {places.get(self.column, self.column)}"

    def met(self, figures: Figures) -> bool:
        """Whether the results reach it; raises Missing."""
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
    """The level at a share of the paper's value. `place`: EVERY, FIRST or LAST, instead of the
    column."""
    return Level(row, place or column, unit, least=share * table[row][column])


@dataclass(frozen=True)
class Effect:
    """The effect size of a claim: a difference or a ratio."""

    name: str
    of: Callable[[Figures], float]
    ratio: bool = False


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim, and the arithmetic that decides it."""

    id: str
    says: str
    right: Callable[[Figures], bool]
    """Whether it is right, levels aside. Like everything that takes results, it raises Missing."""
    shows: Callable[[Figures], str]
    """The results that it is about, in words."""
    effect: Effect
    needs: tuple[Level, ...] = ()
    in_paper: str | None = None
    """What the paper shows, if it prints no numbers."""

    def is_right(self, figures: Figures) -> bool:
        """Whether it is right and all levels that it needs are met; raises Missing."""
        return self.right(figures) and all(level.met(figures) for level in self.needs)


def value(figures: Figures, row: str, column: str) -> float:
    """One result; raises Missing if it has not been measured."""
    found = figures.get(row, {}).get(column)
    if found is None:
        raise Missing
    return found


def along(figures: Figures, row: str) -> dict[str, float]:
    """All columns of a row, at least two; raises Missing."""
    found = figures.get(row, {})
    if len(found) < 2:
        raise Missing
    return {column: value(figures, row, column) for column in found}


def join_names(rows: tuple[str, ...]) -> str:
    """`frozen_qk and mixit`."""
    return " and ".join(rows)
