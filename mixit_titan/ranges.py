"""Ranges of numbers. A number outside of its range is an error of one sentence, and so is one that
is not finite or has more than 64 bits."""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from mixit_titan.errors import ConfigError, Problems, shown


@dataclass(frozen=True, kw_only=True)
class Range:
    """A range of numbers: `least` and `most` are inclusive, `above` and `below` exclusive."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    also: float | None = None
    """One number outside of the range that has a meaning of its own, such as -1 for "all"."""

    def __contains__(self, number: float) -> bool:
        if number == self.also:
            return True
        return (
            _is_plain(number)
            and (self.least is None or number >= self.least)
            and (self.most is None or number <= self.most)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )

    def __str__(self) -> str:
        if self.least is not None and self.most is not None:
            only = self.least == self.most
            words = [f"{self.least}" if only else f"in {self.least}..{self.most}"]
        else:
            bounds = {"at least": self.least, "above": self.above}
            bounds |= {"at most": self.most, "below": self.below}
            words = [f"{word} {bound}" for word, bound in bounds.items() if bound is not None]
        text = " and ".join(words) or "a finite number of at most 64 bits"
        return text if self.also is None else f"{text}, or {self.also}"


ANY = Range()
SEED = Range(least=0, most=2**63 - 1)
COUNT = Range(least=1)
POSITIVE = Range(above=0)
NOT_NEGATIVE = Range(least=0)
SHARE = Range(least=0, most=1)


def check_ranges(
    values: Mapping[str, Any],
    ranges: Mapping[str, Range],
    name: Callable[[str], str] = str,
    problems: Problems | None = None,
) -> None:
    """Raise a ConfigError for the first number in `values` that is out of its range, or collect one
    for each in `problems`. `name` turns a key into what the user knows it by. Of a list all members
    are checked; what is not a number is ignored."""
    problems = problems or Problems()
    for key, value in values.items():
        numbers = value if isinstance(value, list | tuple) else [value]
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int | float):
                continue
            allowed = ranges.get(key, ANY)
            finite = "finite and " if number in (math.inf, -math.inf) and allowed != ANY else ""
            with problems.noted():
                if number not in allowed:
                    raise ConfigError(
                        f"{name(key)} is {shown(value)}: it must be {finite}{allowed}"
                    )


def check_fields(
    form: Any, name: Callable[[str], str] = str, problems: Problems | None = None
) -> None:
    """Check the fields of a dataclass that are annotated with a range, `steps: Annotated[int,
    COUNT]`, and those of the dataclasses within it."""
    values = {field.name: getattr(form, field.name) for field in fields(form)}
    check_ranges(values, _annotated(type(form)), name, problems)
    for value in values.values():
        if is_dataclass(value):
            check_fields(value, name, problems)


@functools.cache
def _annotated(cls: type) -> dict[str, Range]:
    return {
        key: note
        for key, hint in get_type_hints(cls, include_extras=True).items()
        for note in getattr(hint, "__metadata__", ())
        if isinstance(note, Range)
    }


def _is_plain(number: float) -> bool:
    if isinstance(number, int):
        return -(2**63) <= number < 2**63
    return math.isfinite(number)
