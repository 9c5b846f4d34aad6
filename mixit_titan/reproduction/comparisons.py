"""Claims about one column of a table: an order, a difference, closeness, equality."""

import itertools
from collections.abc import Callable, Iterable, Mapping

from mixit_titan.reproduction.claims import (
    Claim,
    Effect,
    Figures,
    Level,
    Missing,
    join_names,
    value,
)
from mixit_titan.reproduction.units import Unit


def in_order(
    id: str, order: str, unit: Unit, *, column: str, tie: float = 0.0, needs: tuple[Level, ...]
) -> Claim:
    """The claim that rows are in an `order`, such as `a > b >= c` or `a < b < c`. A row after `>=`
    may be up to `tie` above the one before it, for neighbors that tie in the paper itself."""
    rows, signs = order.split()[::2], order.split()[1::2]
    falling = 1 if ">" in signs[0] else -1

    def right(figures: Figures) -> bool:
        values = [value(figures, row, column) for row in rows]
        steps = [falling * (a - b) for a, b in itertools.pairwise(values)]
        return all(
            step >= -tie if sign.endswith("=") else step > 0
            for step, sign in zip(steps, signs, strict=True)
        )

    ends = (rows[0], rows[-1]) if falling > 0 else (rows[-1], rows[0])
    ties = f" (>= allows {unit.gap(tie)} the other way)" if tie else ""
    return Claim(
        id=id,
        says=f"{order} in {column}{ties}",
        right=right,
        shows=_several(rows, column, unit),
        effect=_difference(*ends, column) if unit.factor == 100 else _ratio(*ends, column),
        needs=needs,
    )


def in_every(id: str, claims: Mapping[str, Claim]) -> Claim:
    """The claim that all of several claims, by column, are right for the columns of the table."""

    def those(figures: Figures) -> dict[str, Claim]:
        columns = {column for row in figures.values() for column in row}
        found = {column: claim for column, claim in claims.items() if column in columns}
        if not found:
            raise Missing
        return found

    def least(figures: Figures) -> float:
        return min(claim.effect.of(figures) for claim in those(figures).values())

    first = next(iter(claims.values()))
    return Claim(
        id=id,
        says=first.says.rpartition(" in ")[0],
        right=lambda figures: all(claim.right(figures) for claim in those(figures).values()),
        shows=lambda figures: "; ".join(
            f"{column}: {claim.shows(figures)}" for column, claim in those(figures).items()
        ),
        effect=Effect(first.effect.name, least, ratio=first.effect.ratio),
        needs=tuple(level for claim in claims.values() for level in claim.needs),
    )


def apart(
    id: str, high: str, low: str, by: float, unit: Unit, *, column: str, needs: tuple[Level, ...]
) -> Claim:
    """The claim that `low` is at least `by` below `high`."""
    effect = _difference(high, low, column)
    return Claim(
        id=id,
        says=f"{low} is at least {unit.gap(by)} below {high} in {column}",
        right=lambda figures: effect.of(figures) >= by,
        shows=_several((high, low), column, unit),
        effect=effect,
        needs=needs,
    )


def near(
    id: str,
    rows: tuple[str, ...],
    to: str,
    within: float,
    unit: Unit,
    *,
    column: str,
    needs: tuple[Level, ...],
) -> Claim:
    """The claim that no row is more than `within` below `to`; rows may be above it."""

    def above(figures: Figures) -> float:
        lowest = min(value(figures, row, column) for row in rows)
        return lowest - value(figures, to, column)

    return Claim(
        id=id,
        says=f"{join_names(rows)} within {unit.gap(within)} of {to}, or above it, in {column}",
        right=lambda figures: above(figures) >= -within,
        shows=_several((to, *rows), column, unit),
        effect=Effect(f"lowest - {to}", above),
        needs=needs,
    )


def equal(id: str, expected: Mapping[str, float], unit: Unit, *, column: str) -> Claim:
    """The claim that a column is exactly what the paper prints."""

    def largest(figures: Figures) -> float:
        return max(value(figures, row, column) / number for row, number in expected.items())

    return Claim(
        id=id,
        says=f"{column}: exactly as in the paper",
        right=lambda f: all(value(f, row, column) == number for row, number in expected.items()),
        shows=_several(tuple(expected), column, unit),
        effect=Effect("ours / paper, largest", largest, ratio=True),
    )


def _difference(high: str, low: str, column: str) -> Effect:
    return Effect(f"{high} - {low}", lambda f: value(f, high, column) - value(f, low, column))


def _ratio(high: str, low: str, column: str) -> Effect:
    return Effect(
        f"{high} / {low}", lambda f: value(f, high, column) / value(f, low, column), ratio=True
    )


def _several(rows: Iterable[str], column: str, unit: Unit) -> Callable[[Figures], str]:
    return lambda figures: ", ".join(
        f"{row} {unit.show(value(figures, row, column))}" for row in rows
    )
