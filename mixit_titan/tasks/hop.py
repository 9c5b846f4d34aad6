"""k-hop induction heads: follow the last occurrence of a letter, k times.

    question  2 adcada
    answer    _____c

One hop from a position: find the last earlier occurrence of its letter, and go to the letter after
it. From the last `a` that is the `d` before it, and from there the `c`. The answer at each position
is the letter after k hops, or a blank if there is none. Zero hops stay at the letter itself.

The input is a token for k, then the letters, no letter twice in a row.
"""

from dataclasses import dataclass
from string import ascii_lowercase
from typing import Annotated

import numpy as np

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.errors import ConfigError
from mixit_titan.ranges import Range
from mixit_titan.tasks.examples import Examples
from mixit_titan.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class Hop(Task):
    """Follow the last occurrence of a letter k times."""

    hops: Annotated[int, Range(least=0, most=10_000)] = 16
    """The maximum of k, which is uniform in 0..hops."""
    length: Annotated[int, Range(least=1, most=10_000)] = 100
    """Letters in a sequence."""
    letters: int = 4
    """Size of the alphabet."""

    def check(self) -> None:
        if not 2 <= self.letters <= 26:
            raise ConfigError(
                f"--letters is {self.letters}: no letter comes twice in a row, so it takes 2 to 26"
            )

    @property
    def blank(self) -> int:
        return self.letters

    @property
    def token_count(self) -> int:
        return self.letters + 1 + self.hops + 1

    @property
    def positions(self) -> int:
        return self.length + 1

    def draw(self, rng: np.random.Generator, count: int) -> Examples:
        k_N = rng.integers(0, self.hops + 1, count)
        turns_LN = rng.integers(1, self.letters, (self.length, count), dtype=np.int16)
        turns_LN[0] = rng.integers(0, self.letters, count)
        tokens_LN = np.empty((self.positions, count), dtype=np.int32)
        tokens_LN[0] = self.letters + 1 + k_N
        tokens_LN[1:] = np.cumsum(turns_LN, axis=0) % self.letters
        ends_LN = self._hop(tokens_LN[1:], k_N)
        # An index below `count` is place 0, the token for k: that hop found nothing.
        labels_LN = np.where(ends_LN >= count, tokens_LN.take(ends_LN), self.blank)
        labels_LN[0] = IGNORE_INDEX
        return Examples(tokens_LN.T, labels_LN.T, {"k": k_N[:, None]})

    def _hop(self, letters_LN: np.ndarray, k_N: np.ndarray) -> np.ndarray:
        """Return where k hops from each place end, as indices into the flat tokens (place * N +
        example); place 0 is nowhere. k is taken in binary, and hops are composed to powers of
        two."""
        length, count = letters_LN.shape
        ends = np.arange((length + 1) * count).reshape(length + 1, count)
        jump = self._one_hop(letters_LN)
        power = 1
        while power <= self.hops:
            columns = np.flatnonzero(k_N & power)
            ends[:, columns] = jump.take(ends[:, columns])
            power *= 2
            if power <= self.hops:
                jump = jump.take(jump)
        return ends

    def _one_hop(self, letters_LN: np.ndarray) -> np.ndarray:
        length, count = letters_LN.shape
        place = np.arange(1, length + 1, dtype=np.int16)[:, None]
        target = np.zeros((length + 1, count), dtype=np.int16)
        for letter in range(self.letters):
            here = letters_LN == letter
            last = np.maximum.accumulate(here * place, axis=0)[:-1]
            target[2:] += here[1:] * (last + (last > 0))
        return target.astype(np.int64) * count + np.arange(count)

    def token_name(self, token: int) -> str:
        if token <= self.blank:
            return "_" if token == self.blank else ascii_lowercase[token]
        return f"k={token - self.letters - 1}"

    def write(self, tokens_L: np.ndarray, labels_L: np.ndarray) -> tuple[str, str]:
        letters, answer = ("".join(map(self.token_name, row[1:])) for row in (tokens_L, labels_L))
        return f"{tokens_L[0] - self.letters - 1} {letters}", answer
