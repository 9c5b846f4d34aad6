"""The kinds of bad input. Adding one: a function that makes a case, and a line in KINDS."""

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.good import Good


@dataclass(frozen=True)
class Case:
    """A command to be tried, and what `check` is to allow it."""

    words: list[str]
    codes: Collection[int] = (0, 1, 2)
    may_leave: Collection[str] = ()


Kind = Callable[[random.Random, Path, Good], Case]
"""Makes a case from random numbers. The path is an empty folder, which the command will have as its
working directory: what the case needs is written there. `Good` has what to damage copies of, and is
never changed."""

KINDS: dict[str, Kind] = {}
