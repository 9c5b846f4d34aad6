"""Claims about trends of rows over depth, heads or pairs."""

import operator
from collections.abc import Callable

from mixit_titan.reproduction.claims import (
    Claim,
    Effect,
    Figures,
    Level,
    Missing,
    along,
    join_names,
)
from mixit_titan.reproduction.units import Unit


def changes(
    id: str,
    row: str,
    by: float,
    over: str,
    unit: Unit,
    *,
    needs: tuple[Level, ...],
    in_paper: str = "",
) -> Claim:
    """The claim that a row rises by at least `by` from its first to its last column, or falls if
    `by` is negative."""

    def change(figures: Figures) -> float:
        first, *_, last = along(figures, row).values()
        return last - first

    compare = operator.ge if by > 0 else operator.le
    how = f"{'rises' if by > 0 else 'falls'} by {unit.gap(abs(by))} or more"
    return Claim(
        id=id,
        says=f"{row} {how} over {over}",
        right=lambda figures: compare(change(figures), by),
        shows=_lines((row,), unit),
        effect=Effect(f"{row}, last - first", change),
        needs=needs,
        in_paper=in_paper or None,
    )


def stays(
    id: str,
    rows: tuple[str, ...],
    within: float,
    over: str,
    unit: Unit,
    *,
    needs: tuple[Level, ...],
    in_paper: str = "",
) -> Claim:
    """The claim that no value of a row is more than `within` below its first."""

    def fall(figures: Figures) -> float:
        found = [list(along(figures, row).values()) for row in rows]
        return min(min(values) - values[0] for values in found)

    return Claim(
        id=id,
        says=f"{join_names(rows)} at most {unit.gap(within)} below the first value, over {over}",
        right=lambda figures: fall(figures) >= -within,
        shows=_lines(rows, unit),
        effect=Effect("lowest - first", fall),
        needs=needs,
        in_paper=in_paper or None,
    )


def ends_above(
    id: str, high: str, low: str, by: float, over: str, unit: Unit, *, needs: tuple[Level, ...]
) -> Claim:
    """The claim that `high` is at least `by` above `low` in the last column."""

    def gap(figures: Figures) -> float:
        highs, lows = _both(figures, high, low)
        return highs[-1] - lows[-1]

    return Claim(
        id=id,
        says=f"{high} is at least {unit.gap(by)} above {low} at the largest {over}",
        right=lambda figures: gap(figures) >= by,
        shows=_lines((high, low), unit),
        effect=Effect(f"{high} - {low}, last", gap),
        needs=needs,
    )


def grows(id: str, row: str, factor: float, over: str, unit: Unit) -> Claim:
    """The claim that the last value of a row is at least `factor` times its first."""
    return Claim(
        id=id,
        says=f"{row} grows at least {factor:g} times over {over}",
        right=lambda figures: _growth(figures, row) >= factor,
        shows=_lines((row,), unit),
        effect=Effect(f"{row}, last / first", lambda f: _growth(f, row), ratio=True),
    )


def grows_less(id: str, low: str, high: str, factor: float, over: str) -> Claim:
    """The claim that the growth of `high` is at least `factor` times that of `low`."""

    def more(figures: Figures) -> float:
        return _growth(figures, high) / _growth(figures, low)

    return Claim(
        id=id,
        says=f"over {over}, {high} grows at least {factor:g} times as much as {low}",
        right=lambda figures: more(figures) >= factor,
        shows=lambda f: ", ".join(f"{row} {_growth(f, row):.1f} times" for row in (low, high)),
        effect=Effect(f"growth of {high} / of {low}", more, ratio=True),
    )


def _growth(figures: Figures, row: str) -> float:
    first, *_, last = along(figures, row).values()
    return last / first


def below(id: str, low: str, high: str, over: str, unit: Unit) -> Claim:
    """The claim that `low` is below `high` in every column."""

    def times(figures: Figures) -> float:
        lows, highs = _both(figures, low, high)
        return min(b / a for a, b in zip(lows, highs, strict=True))

    return Claim(
        id=id,
        says=f"{low} is below {high} at every {over}",
        right=lambda figures: times(figures) > 1,
        shows=_lines((low, high), unit),
        effect=Effect(f"{high} / {low}, smallest", times, ratio=True),
    )


def falls_first(
    id: str,
    low: str,
    high: str,
    by: float,
    over: str,
    unit: Unit,
    *,
    needs: tuple[Level, ...],
    in_paper: str,
) -> Claim:
    """The claim that `low` falls by at least `by` before `high` does, and then stays below it."""

    def right(figures: Figures) -> bool:
        a, b = _both(figures, low, high)
        fallen = next((n for n, at in enumerate(a) if a[0] - at >= by), None)
        if fallen is None:
            return False
        later = zip(a[fallen:], b[fallen:], strict=True)
        return b[0] - b[fallen] < by and all(x < y for x, y in later)

    def largest(figures: Figures) -> float:
        a, b = _both(figures, low, high)
        return max(y - x for x, y in zip(a, b, strict=True))

    return Claim(
        id=id,
        says=f"{low} falls by {unit.gap(by)} at fewer {over} than {high}, and stays below it",
        right=right,
        shows=_lines((low, high), unit),
        effect=Effect(f"{high} - {low}, largest", largest),
        needs=needs,
        in_paper=in_paper,
    )


def _both(figures: Figures, a: str, b: str) -> tuple[list[float], list[float]]:
    """Two rows with the same columns."""
    one, other = along(figures, a), along(figures, b)
    if one.keys() != other.keys():
        raise Missing
    return [*one.values()], [*other.values()]


def _lines(rows: tuple[str, ...], unit: Unit) -> Callable[[Figures], str]:
    def line(figures: Figures, row: str) -> str:
        shown = [f"{unit.show(number)} at {at}" for at, number in along(figures, row).items()]
        return f"{row}: {', '.join(shown)}"

    return lambda figures: "; ".join(line(figures, row) for row in rows)
