"""Modular addition: two numbers below the modulus, and their sum modulo it.

    question  12+55 mod 59
    answer    8

The input is the two numbers as tokens; the label at the second is the sum. All pairs are listed in
random order: the first `--train` of them are for training, the rest for testing.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.errors import ConfigError
from mixit_titan.ranges import Range
from mixit_titan.tasks.examples import Examples, Listed, Stream
from mixit_titan.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class Modular(Task):
    """Add two numbers modulo a number."""

    modulus: Annotated[int, Range(least=2, most=10000)] = 599
    """The modulus of the sum; both numbers are below it."""

    @property
    def token_count(self) -> int:
        return self.modulus

    @property
    def positions(self) -> int:
        return 2

    def split(self, *, seed: int, train: int, test: int) -> tuple[Stream, Examples]:
        """Split the list of pairs. `test` = 0: all pairs that are not trained on."""
        pairs = self.modulus**2
        if train < 1 or train + max(test, 1) > pairs:
            raise ConfigError(
                f"--train {train} and --test {test} do not divide the {pairs:,} pairs of --modulus "
                f"{self.modulus}: --train must be above 0 and leave some pairs to test"
            )
        pairs_NL = np.stack(
            np.divmod(np.random.default_rng([seed, 1]).permutation(pairs), self.modulus), 1
        )
        rest = pairs_NL[train:][: test or None]
        return Listed(self.examples(pairs_NL[:train]), seed), self.examples(rest)

    def examples(self, pairs_NL: np.ndarray) -> Examples:
        labels = np.full(pairs_NL.shape, IGNORE_INDEX, dtype=np.int32)
        labels[:, 1] = pairs_NL.sum(1) % self.modulus
        return Examples(pairs_NL.astype(np.int32), labels)

    def write(self, tokens_L: np.ndarray, labels_L: np.ndarray) -> tuple[str, str]:
        return f"{tokens_L[0]}+{tokens_L[1]} mod {self.modulus}", str(labels_L[1])
