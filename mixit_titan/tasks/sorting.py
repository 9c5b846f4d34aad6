"""Sorting: numbers, a bar, and the numbers again in ascending order.

    tokens  3 0 7 3 | 0 3 3
    labels  . . . . 0 3 3 7

Numbers are drawn with replacement. Each sorted one is predicted from those before it.
"""

from dataclasses import dataclass

import numpy as np

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.errors import ConfigError
from mixit_titan.tasks.examples import Examples
from mixit_titan.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class Sorting(Task):
    """Sort the numbers of a sequence."""

    length: int = 32
    """Numbers to sort."""
    size: int = 64
    """Numbers are below this."""

    def check(self) -> None:
        if self.length < 2:
            raise ConfigError(f"--length is {self.length}: it takes at least 2 numbers to sort")
        if self.size < 2:
            raise ConfigError(f"--size is {self.size}: there must be at least 2 numbers")

    @property
    def token_count(self) -> int:
        return self.size + 1

    @property
    def positions(self) -> int:
        return 2 * self.length

    def draw(self, rng: np.random.Generator, count: int) -> Examples:
        numbers = rng.integers(0, self.size, (count, self.length), dtype=np.int32)
        sorted_ = np.sort(numbers, axis=1)
        bar = np.full((count, 1), self.size, dtype=np.int32)
        tokens = np.concatenate([numbers, bar, sorted_[:, :-1]], axis=1)
        labels = np.concatenate([np.full_like(numbers, IGNORE_INDEX), sorted_], axis=1)
        return Examples(tokens, labels)

    def token_name(self, token: int) -> str:
        return "|" if token == self.size else str(token)
