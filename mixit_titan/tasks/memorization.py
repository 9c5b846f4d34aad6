"""Memorization: a random value for each pair of keys.

    question  17 403
    answer    211

All keys x keys pairs are trained, and accuracy is measured on the same pairs: no pair follows from
the others. The input is a token for each key (the second of a pair has tokens of its own), and the
label at the second is the value. The tables are a function of the seed.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.errors import ConfigError
from mixit_titan.ranges import Range
from mixit_titan.tasks.evaluation import Score
from mixit_titan.tasks.examples import Examples, Listed, Stream
from mixit_titan.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class Memorization(Task):
    """Memorize a random value for each pair of keys."""

    keys: Annotated[int, Range(least=1, most=2**23)] = 512
    """Number of keys, for each of the two in a pair."""
    values: Annotated[int, Range(least=2, most=2**24)] = 512
    """Number of values, which are uniform."""
    vocab: Annotated[int, Range(least=2, most=2**24)] = 1024
    """Size of the vocabulary."""

    def check(self) -> None:
        if max(2 * self.keys, self.values) > self.vocab:
            raise ConfigError(
                f"--vocab is {self.vocab}: the vocabulary is too small for two sets of --keys "
                f"{self.keys} and for --values {self.values}"
            )

    @property
    def token_count(self) -> int:
        return self.vocab

    @property
    def positions(self) -> int:
        return 3  # two keys and the value, as the paper counts them

    def split(self, *, seed: int, train: int, test: int) -> tuple[Stream, Examples]:
        if train or test:
            raise ConfigError(
                "memorization trains and tests on all of its pairs: set --keys, "
                "not --train or --test"
            )
        examples = self.examples(seed)
        return Listed(examples, seed), examples

    def validation(self, *, seed: int, train: int, test: int) -> tuple[Stream, Examples]:
        """Nothing can be held out of what is to be memorized: settings are chosen on the tables of
        seeds other than those reported."""
        return self.split(seed=seed, train=train, test=test)

    def stopping(self, stream: Stream, *, count: int) -> Examples:
        """Nothing else is left to decide on than the pairs that are trained and tested."""
        return stream.examples

    def examples(self, seed: int) -> Examples:
        pairs = np.stack(np.divmod(np.arange(self.keys**2), self.keys), 1)
        values = np.random.default_rng([seed, 1]).integers(0, self.values, len(pairs))
        labels = np.stack([np.full(len(pairs), IGNORE_INDEX), values], 1)
        return Examples(np.add(pairs, [0, self.keys]).astype(np.int32), labels)

    def figures(self, score: Score, trained_parameters: int) -> dict[str, float]:
        """Report how much the model remembers, at log2(values) bits per value."""
        bits = float(np.log2(self.values) * self.keys**2 * score.accuracy)
        return {"bits_per_parameter": bits / trained_parameters}

    def write(self, tokens_L: np.ndarray, labels_L: np.ndarray) -> tuple[str, str]:
        return f"{tokens_L[0]} {tokens_L[1] - self.keys}", str(labels_L[1])
