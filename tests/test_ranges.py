import math
from dataclasses import dataclass, field
from typing import Annotated

import pytest

from mixit_titan.errors import ConfigError
from mixit_titan.ranges import ANY, COUNT, POSITIVE, SHARE, Range, check_fields, check_ranges


@pytest.mark.parametrize(
    ("allowed", "inside", "outside"),
    [
        (COUNT, [1, 2**63 - 1], [0, -1, 2**63, math.nan, math.inf]),
        (POSITIVE, [1e-320, 1e308, 1], [0, -0.0, math.inf, math.nan, -1]),
        (SHARE, [0, 1, 0.5], [-1e-9, 1.0001, math.nan]),
        (Range(least=0, below=1), [0.0, 0.999], [1.0, -0.1, 5]),
        (Range(least=1, also=-1), [-1, 1], [0, -2]),
        (ANY, [-(2**63), 0.0, -1e308], [-(2**63) - 1, math.inf, -math.inf, math.nan]),
    ],
)
def test_what_is_inside(allowed: Range, inside: list[float], outside: list[float]) -> None:
    assert all(number in allowed for number in inside)
    assert not any(number in allowed for number in outside)


def test_a_range_in_words() -> None:
    assert str(COUNT) == "at least 1"
    assert str(Range(least=1, most=9, also=-1)) == "in 1..9, or -1"
    assert str(Range(least=0, below=1)) == "at least 0 and below 1"
    assert str(Range(least=1, most=1)) == "1"
    assert str(ANY) == "a finite number of at most 64 bits"


def test_every_member_of_a_list_is_checked_and_nothing_but_numbers() -> None:
    check_ranges({"a": [0.5, 1], "b": "x", "c": True, "d": None}, dict.fromkeys("abcd", SHARE))
    with pytest.raises(ConfigError, match=r"^--a is \[0.5, 2\]: it must be in 0..1$"):
        check_ranges({"a": [0.5, 2]}, {"a": SHARE}, "--{}".format)
    with pytest.raises(ConfigError, match=r"^a is nan: it must be a finite number"):
        check_ranges({"a": math.nan}, {})
    for long in (2**16000, [1, 2**16000]):
        with pytest.raises(ConfigError, match=r"^a is a number with thousands of digits: "):
            check_ranges({"a": long}, {})


@dataclass
class Inner:
    seed: Annotated[int, COUNT] = 1


@dataclass
class Outer:
    inner: Inner = field(default_factory=Inner)
    share: Annotated[float | None, SHARE] = None


def test_the_fields_of_a_dataclass_and_of_those_within() -> None:
    check_fields(Outer())
    with pytest.raises(ConfigError, match="share is 2"):
        check_fields(Outer(share=2))
    with pytest.raises(ConfigError, match="seed is 0"):
        check_fields(Outer(inner=Inner(seed=0)))
