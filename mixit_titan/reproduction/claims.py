"""A claim of the paper: a sentence that arithmetic decides, on the paper's figures and on ours."""

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mixit_titan.reproduction.units import Unit

Figures = Mapping[str, Mapping[str, float | None]]
"""Row -> column -> value; None: it is to be measured, and is not there yet."""

NOT_RUN = "not run"
VERDICTS = {True: "holds", False: "does not hold", None: NOT_RUN}


class Missing(Exception):
    """A figure that a claim is about is not there."""


@dataclass(frozen=True)
class Claim:
    id: str
    says: str
    decide: Callable[[Figures], tuple[bool, str]]
    """Whether it holds, and by which figures. Raises Missing."""
    in_paper: str | None = None
    """What the paper shows, where it prints no figures."""
    strictly: Callable[[Figures], bool] = lambda figures: True
    """Whether what holds does so without the tie that it allows."""

    def judge(self, paper: Figures, ours: Figures) -> dict[str, Any]:
        """`holds` is None where ours have not been measured."""
        try:
            holds, found = self.decide(ours)
        except Missing:
            holds, found = None, NOT_RUN
        return {
            "id": self.id,
            "says": self.says,
            "holds": holds,
            "verdict": VERDICTS[holds] + (" (tie)" if holds and not self.strictly(ours) else ""),
            "paper": self.in_paper or self.decide(paper)[1],
            "ours": found,
        }


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


def in_order(
    id: str,
    rows: tuple[str, ...],
    unit: Unit,
    *,
    column: str | None = None,
    rising: bool = False,
    tie: float = 0.0,
) -> Claim:
    """Each row is below the one before (above: `rising`), in one column or in all that there are.
    Neighbours may be in the wrong order by up to `tie`, if the ends are further apart than that."""

    def decide(figures: Figures, tie: float = tie) -> tuple[bool, str]:
        columns = [column] if column else list(figures.get(rows[0], {}))
        if not columns:
            raise Missing
        right, shown = True, []
        for name in columns:
            values = [value(figures, row, name) for row in rows]
            steps = [b - a if rising else a - b for a, b in itertools.pairwise(values)]
            right &= sum(steps) > tie and all(step >= -tie if tie else step > 0 for step in steps)
            shown.append(_list(zip(rows, values, strict=True), unit, "" if column else name))
        return right, "; ".join(shown)

    sign = "<" if rising else ">"
    ties = f" (neighbours within {unit.gap(tie)} are a tie)" if tie else ""
    says = f"{f' {sign} '.join(rows)}{f' in {column}' if column else ''}{ties}"
    return Claim(id, says, decide, strictly=lambda figures: decide(figures, 0.0)[0])


def apart(id: str, high: str, low: str, by: float, unit: Unit, *, column: str) -> Claim:
    """`low` is at least `by` below `high`."""

    def decide(figures: Figures) -> tuple[bool, str]:
        values = {row: value(figures, row, column) for row in (high, low)}
        return values[high] - values[low] >= by, _list(values.items(), unit)

    return Claim(id, f"{low} is at least {unit.gap(by)} below {high} in {column}", decide)


def near(
    id: str, rows: tuple[str, ...], to: str, within: float, unit: Unit, *, column: str
) -> Claim:
    """No row is more than `within` below `to`; it may be above."""

    def decide(figures: Figures) -> tuple[bool, str]:
        values = {row: value(figures, row, column) for row in (to, *rows)}
        lowest = min(values[row] for row in rows)
        return values[to] - lowest <= within, _list(values.items(), unit)

    return Claim(
        id, f"{_names(rows)} within {unit.gap(within)} of {to}, or above: {column}", decide
    )


def equal(id: str, expected: Mapping[str, float], unit: Unit, *, column: str) -> Claim:
    """Exactly what the paper prints."""

    def decide(figures: Figures) -> tuple[bool, str]:
        values = {row: value(figures, row, column) for row in expected}
        return values == dict(expected), _list(values.items(), unit)

    return Claim(id, f"{column}: exactly the paper's", decide)


def changes(id: str, row: str, by: float, over: str, unit: Unit, *, in_paper: str = "") -> Claim:
    """From its first column to its last a row rises by at least `by`, or falls if that is below
    0."""

    def decide(figures: Figures) -> tuple[bool, str]:
        values = along(figures, row)
        first, *_, last = values.values()
        compare = operator.ge if by > 0 else operator.le
        return compare(last - first, by), _over(values, unit, row)

    how = f"{'rises' if by > 0 else 'falls'} by {unit.gap(abs(by))} or more"
    return Claim(id, f"{row} {how} over the {over}", decide, in_paper or None)


def stays(
    id: str, rows: tuple[str, ...], within: float, over: str, unit: Unit, *, in_paper: str = ""
) -> Claim:
    """No figure of a row is more than `within` below its first."""

    def decide(figures: Figures) -> tuple[bool, str]:
        right, shown = True, []
        for row in rows:
            values = along(figures, row)
            first = next(iter(values.values()))
            right &= first - min(values.values()) <= within
            shown.append(_over(values, unit, row))
        return right, "; ".join(shown)

    says = f"{_names(rows)} never more than {unit.gap(within)} below the start, over the {over}"
    return Claim(id, says, decide, in_paper or None)


def ends_above(id: str, high: str, low: str, by: float, over: str, unit: Unit) -> Claim:
    """In the last column, `high` is at least `by` above `low`."""

    def decide(figures: Figures) -> tuple[bool, str]:
        last = {row: [*along(figures, row).items()][-1] for row in (high, low)}
        if last[high][0] != last[low][0]:
            raise Missing
        values = {row: number for row, (_, number) in last.items()}
        return values[high] - values[low] >= by, f"{_list(values.items(), unit)} at {last[low][0]}"

    says = f"{high} is at least {unit.gap(by)} above {low} at the largest {over}"
    return Claim(id, says, decide)


def grows(id: str, row: str, factor: float, over: str, unit: Unit) -> Claim:
    """The last figure of a row is at least `factor` times its first."""

    def decide(figures: Figures) -> tuple[bool, str]:
        values = along(figures, row)
        return _growth(values) >= factor, _over(values, unit, row)

    return Claim(id, f"{row} grows at least {factor:g} times over the {over}", decide)


def grows_less(id: str, low: str, high: str, factor: float, over: str, unit: Unit) -> Claim:
    """From first to last, `high` is multiplied by at least `factor` times what `low` is."""

    def decide(figures: Figures) -> tuple[bool, str]:
        lows, highs = _growth(along(figures, low)), _growth(along(figures, high))
        return highs >= factor * lows, f"{low} {lows:.1f} times, {high} {highs:.1f} times"

    says = f"over the {over}, {high} grows at least {factor:g} times as much as {low}"
    return Claim(id, says, decide)


def _growth(values: Mapping[str, float]) -> float:
    first, *_, last = values.values()
    return last / first


def below(id: str, low: str, high: str, over: str, unit: Unit) -> Claim:
    """`low` is below `high` in every column."""

    def decide(figures: Figures) -> tuple[bool, str]:
        lows, highs = along(figures, low), along(figures, high)
        if lows.keys() != highs.keys():
            raise Missing
        shown = f"{_over(lows, unit, low)}; {_over(highs, unit, high)}"
        return all(lows[column] < highs[column] for column in lows), shown

    return Claim(id, f"{low} is below {high} at every {over}", decide)


def falls_first(
    id: str, low: str, high: str, by: float, over: str, unit: Unit, in_paper: str
) -> Claim:
    """`low` falls by at least `by` before `high` does, and is the lower one from there on."""

    def decide(figures: Figures) -> tuple[bool, str]:
        lows, highs = along(figures, low), along(figures, high)
        if lows.keys() != highs.keys():
            raise Missing
        shown = f"{_over(lows, unit, low)}; {_over(highs, unit, high)}"
        a, b = list(lows.values()), list(highs.values())
        fallen = next((n for n, at in enumerate(a) if a[0] - at >= by), None)
        if fallen is None:
            return False, shown
        later = zip(a[fallen:], b[fallen:], strict=True)
        return b[0] - b[fallen] < by and all(x < y for x, y in later), shown

    says = f"{low} falls by {unit.gap(by)} at fewer {over} than {high}, and stays below it"
    return Claim(id, says, decide, in_paper)


def _list(values: Iterable[tuple[str, float]], unit: Unit, name: str = "") -> str:
    text = ", ".join(f"{key} {unit.show(number)}" for key, number in values)
    return f"{name}: {text}" if name else text


def _over(values: Mapping[str, float], unit: Unit, row: str) -> str:
    return f"{row}: " + ", ".join(f"{unit.show(number)} at {at}" for at, number in values.items())


def _names(rows: tuple[str, ...]) -> str:
    return " and ".join(rows)
