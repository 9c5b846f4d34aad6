"""A command that is given something bad."""

from collections.abc import Collection
from dataclasses import dataclass

from tests.fuzz.attempt import SECONDS


@dataclass(frozen=True)
class Case:
    """A command to be tried, and what `check` is to allow it."""

    words: list[str]
    codes: Collection[int] = (0, 1, 2)
    may_leave: Collection[str] = ()
    seconds: float = SECONDS
