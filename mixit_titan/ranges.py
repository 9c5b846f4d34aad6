"""What a number may be. One outside of its range is one sentence; so is one that is not finite or
has more than 64 bits, unless its range says otherwise."""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from mixit_titan.errors import ConfigError, shown


@dataclass(frozen=True, kw_only=True)
class Range:
    """`least` and `most` belong to it, `above` and `below` do not."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    also: float | None = None
    """A number outside that has a meaning of its own, such as -1 for "all"."""
    infinite: bool = False
    """Whether it may be infinite: "no limit"."""

    def __contains__(self, number: float) -> bool:
        if number == self.also:
            return True
        return (
            (self.infinite or _is_plain(number))
            and (self.least is None or number >= self.least)
            and (self.most is None or number <= self.most)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
            and not math.isnan(number)
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
    values: Mapping[str, Any], ranges: Mapping[str, Range], name: Callable[[str], str] = str
) -> None:
    """Refuse the first number of `values` that is not in its range, under the name that the user
    knows it by. Of a list all members are checked; what is not a number is left alone."""
    for key, value in values.items():
        numbers = value if isinstance(value, list | tuple) else [value]
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int | float):
                continue
            allowed = ranges.get(key, ANY)
            if number not in allowed:
                raise ConfigError(f"{name(key)} is {shown(value)}: it must be {allowed}")


def check_fields(form: Any, name: Callable[[str], str] = str) -> None:
    """The same for a dataclass whose fields are annotated, `steps: Annotated[int, COUNT]`, and for
    the dataclasses within."""
    values = {field.name: getattr(form, field.name) for field in fields(form)}
    check_ranges(values, _annotated(type(form)), name)
    for value in values.values():
        if is_dataclass(value):
            check_fields(value, name)


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
