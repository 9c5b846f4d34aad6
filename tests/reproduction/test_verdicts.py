"""Verdicts by resampled seeds, on figures made by hand."""

import pytest

from mixit_titan.reproduction.claims import Claim, Level
from mixit_titan.reproduction.comparisons import apart, in_order
from mixit_titan.reproduction.measured import Measured
from mixit_titan.reproduction.units import PERCENT
from mixit_titan.reproduction.verdicts import judge, verdict_of

LEVEL = Level("a", "x", PERCENT, least=0.9)
GAP = apart("gap", "a", "b", 0.2, PERCENT, column="x", needs=(LEVEL,))
ORDER = in_order("order", "a >= b > c", PERCENT, column="x", tie=0.01, needs=())


def verdict(claim: Claim, **rows: tuple[float, ...] | None) -> str:
    ours = {
        row: {"x": None if values is None else Measured(dict(zip("01234", values, strict=False)))}
        for row, values in rows.items()
    }
    paper = {row: {"x": 1.0} for row in "abc"}
    (found,) = judge([claim], paper, ours, {"all": PERCENT})
    return found["verdict"]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((0.95, 0.96, 0.97), (0.5, 0.51, 0.52), "holds"),
        # The means are 25 points apart, and 15 and 35 are as likely.
        ((0.95, 0.96, 0.97), (0.60, 0.71, 0.82), "holds weakly"),
        ((0.95, 0.96, 0.97), (0.67, 0.78, 0.89), "undecided"),
        ((0.95, 0.96, 0.97), (0.89, 0.9, 0.91), "does not hold"),
        # As far apart, and below the level that is needed.
        ((0.75, 0.76, 0.77), (0.1, 0.11, 0.12), "does not hold"),
        ((0.82, 0.88, 0.91), (0.1, 0.11, 0.12), "undecided"),
        ((0.89, 0.93, 0.97), (0.1, 0.11, 0.12), "holds weakly"),
        # One seed, of one of them or of both, decides nothing.
        ((0.95, 0.96, 0.97), (0.1,), "holds weakly"),
        ((0.95,), (0.1,), "holds weakly"),
        ((0.95,), (0.94,), "undecided"),
        ((0.95, 0.96, 0.97), None, "not run"),
    ],
)
def test_the_interval_decides(
    a: tuple[float, ...], b: tuple[float, ...] | None, expected: str
) -> None:
    assert verdict(GAP, a=a, b=b) == expected


@pytest.mark.parametrize(
    ("b", "expected"),
    [
        ((0.9, 0.9, 0.9), "holds"),
        ((0.959, 0.959, 0.959), "holds"),
        # Above by more than the tie of a point.
        ((0.965, 0.965, 0.965), "does not hold"),
        # Above by less on average, by more in some resamples.
        ((0.945, 0.955, 0.965), "holds weakly"),
    ],
)
def test_a_tie_is_a_tie_in_every_resample(b: tuple[float, ...], expected: str) -> None:
    assert verdict(ORDER, a=(0.95, 0.95, 0.95), b=b, c=(0.5, 0.5, 0.5)) == expected


def test_there_is_no_tie_where_the_order_has_none() -> None:
    same = (0.9, 0.9, 0.9)
    assert verdict(ORDER, a=same, b=same, c=same) == "does not hold"


@pytest.mark.parametrize(
    ("right", "share", "expected"),
    [
        (True, 0.975, "holds"),
        (True, 0.974, "holds weakly"),
        (True, None, "holds weakly"),
        (False, 0.025, "undecided"),
        (False, 0.024, "does not hold"),
        (False, None, "undecided"),
    ],
)
def test_the_bounds(right: bool, share: float | None, expected: str) -> None:
    assert verdict_of(right, share) == expected


def test_an_entry_says_what_decided() -> None:
    ours = {
        "a": {"x": Measured({"0": 0.80, "1": 0.82})},
        "b": {"x": Measured({"0": 0.3, "1": 0.3})},
    }
    (found,) = judge([GAP], {"a": {"x": 1.0}, "b": {"x": 0.25}}, ours, {"all": PERCENT})
    low, high = found["effect"].pop("interval")
    assert low < 0.51 < high
    assert found == {
        "id": "gap",
        "says": "b is at least 20 points below a in x",
        "needs": ["a at least 90.00% in x"],
        "paper": "a 100.00%, b 25.00%",
        "ours": "a 81.00%, b 30.00%",
        "unmet": ["a at least 90.00% in x"],
        "verdict": found["verdict"],
        "share": found["share"],
        "effect": {
            "name": "a - b",
            "ratio": False,
            "paper": 0.75,
            "ours": pytest.approx(0.51),
        },
    }
    assert found["verdict"] == "undecided" and 0.025 < found["share"] < 0.5
