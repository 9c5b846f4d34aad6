"""Retrieval: key-value pairs, then one of the keys as a query for its value.

    question  200 17 131 5 200      (200 -> 17, 131 -> 5, then the query 200)
    answer    17

Keys are drawn without replacement from the upper half of the vocabulary, values from the lower
half. The number of pairs is uniform in 1..pairs. A shorter sequence is padded on the right, after
the query, with a token beyond the vocabulary.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.errors import ConfigError
from mixit_titan.ranges import Range
from mixit_titan.tasks.distinct import distinct
from mixit_titan.tasks.examples import Examples
from mixit_titan.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class Retrieval(Task):
    """Recall the value of one key."""

    pairs: Annotated[int, Range(least=1, most=10_000)] = 30
    """The maximum number of key-value pairs in a sequence."""
    vocab: Annotated[int, Range(least=2, most=2**24)] = 256
    """Size of the vocabulary: the lower half are the values, and keys come from the upper half."""
    keys: Annotated[int | None, Range(least=1, most=2**23)] = None
    """Number of different keys (default: the complete upper half)."""

    def check(self) -> None:
        if self.all_keys > self.vocab // 2:
            raise ConfigError(
                f"--keys is {self.keys} and the vocabulary of --vocab {self.vocab} has only "
                f"{self.vocab // 2} tokens for keys: lower --keys or raise --vocab"
            )
        if self.pairs > self.all_keys:
            raise ConfigError(
                f"--pairs is {self.pairs} and there are only {self.all_keys} different keys: "
                "lower --pairs, or raise --vocab or --keys"
            )

    @property
    def all_keys(self) -> int:
        return self.vocab // 2 if self.keys is None else self.keys

    @property
    def token_count(self) -> int:
        return self.vocab + 1

    @property
    def positions(self) -> int:
        return 2 * self.pairs + 1

    @property
    def length_key(self) -> str:
        return "pairs"

    def draw(self, rng: np.random.Generator, count: int) -> Examples:
        m_N = rng.integers(1, self.pairs + 1, count)
        keys_PN = self.vocab - self.all_keys + distinct(rng, self.all_keys, self.pairs, count)
        values_PN = rng.integers(0, self.vocab // 2, (self.pairs, count), dtype=np.int32)
        asked_N = (rng.random(count) * m_N).astype(np.int64)
        every = np.arange(count)
        tokens_LN = np.empty((self.positions, count), dtype=np.int32)
        tokens_LN[:-1:2], tokens_LN[1::2] = keys_PN, values_PN
        padding = self.vocab
        tokens_LN[np.arange(self.positions)[:, None] > 2 * m_N] = padding
        tokens_LN[2 * m_N, every] = keys_PN[asked_N, every]
        labels_LN = np.full((self.positions, count), IGNORE_INDEX, dtype=np.int32)
        labels_LN[2 * m_N, every] = values_PN[asked_N, every]
        return Examples(tokens_LN.T, labels_LN.T, {"pairs": m_N[:, None]})

    def write(self, tokens_L: np.ndarray, labels_L: np.ndarray) -> tuple[str, str]:
        question = " ".join(str(token) for token in tokens_L if token < self.vocab)
        return question, str(labels_L[labels_L != IGNORE_INDEX][0])
