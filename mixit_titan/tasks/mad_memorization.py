"""MAD's memorization: a value for each key, the same in all sequences, which training must
memorize.

    tokens  3 ? 1 ? 3 ?     (keys 0..3, values 4..8)
    labels  . 7 . 4 . 7

From Poli et al. (arXiv 2403.17844), with the defaults of their code (athms/mad-lab). No two keys
have the same value; the table is a function of the seed. A sequence holds keys drawn with repeats,
each followed by the query token. Test sequences have the same keys in other orders: what is not in
the training set cannot be known. (`memorization` is another task, the MixiT paper's.)
"""

import functools
from dataclasses import dataclass

import numpy as np

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.errors import ConfigError
from mixit_titan.tasks.examples import Examples, Stream, drawn_split
from mixit_titan.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class MadMemorization(Task):
    """Memorize a fixed value for each key."""

    vocab: int = 256
    """Size of the vocabulary: keys, as many values or one more, and the query token."""
    length: int = 32
    """Tokens in a sequence."""

    def check(self) -> None:
        if self.vocab < 3:
            raise ConfigError(f"--vocab is {self.vocab}: a key, a value and the query need 3")
        if self.length < 2 or self.length % 2:
            raise ConfigError(
                f"--length is {self.length}: keys and their queries take an even length"
            )

    @property
    def token_count(self) -> int:
        return self.vocab

    @property
    def positions(self) -> int:
        return self.length

    @property
    def keys(self) -> int:
        return (self.vocab - 1) // 2

    def values(self, seed: int) -> np.ndarray:
        """Return (keys,): the value of each key."""
        rng = np.random.default_rng([seed, 4])  # a stream that no split draws from
        return rng.permutation(np.arange(self.keys, self.vocab - 1, dtype=np.int32))[: self.keys]

    def split(self, *, seed: int, train: int, test: int) -> tuple[Stream, Examples]:
        draw = functools.partial(self._draw_with, self.values(seed))
        return drawn_split(draw, seed=seed, train=train, test=test)

    def _draw_with(self, values_K: np.ndarray, rng: np.random.Generator, count: int) -> Examples:
        keys = rng.integers(0, self.keys, (count, self.length // 2), dtype=np.int32)
        tokens = np.full((count, self.length), self.vocab - 1, dtype=np.int32)
        tokens[:, 0::2] = keys
        labels = np.full(tokens.shape, IGNORE_INDEX, dtype=np.int32)
        labels[:, 1::2] = values_K[keys]
        return Examples(tokens, labels)

    def token_name(self, token: int) -> str:
        return "?" if token == self.vocab - 1 else str(token)
