"""Multi-query associative recall: key-value pairs, then every key again, with its value as the
label.

    tokens  3 9 5 6 5 _ _ _ 3 _ _ _     (3 -> 9, 5 -> 6; then the queries 5 and 3)
    labels  . . . . 6 . . . 9 . . .

MQAR of Arora et al., "Zoology" (arXiv 2312.04927), with the names of their code
(HazyResearch/zoology) and the values of its config for Figure 2. No key and no value appears
twice among the pairs. What follows the pairs is divided into slots of two tokens, and each key in
turn takes the first token of a free one: slot i = 1, 2, ... with a probability proportional to
i^(power_a - 1). Below power_a = 1 most queries come early; at 1 slots are uniform.

Token 0 fills the rest. Of the other tokens, the lower half of the vocabulary are keys and the upper
half are values.
"""

from dataclasses import dataclass

import numpy as np

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.errors import ConfigError
from mixit_titan.tasks.distinct import distinct
from mixit_titan.tasks.examples import Examples, octave
from mixit_titan.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class Mqar(Task):
    """Recall the value of every key of a sequence."""

    pairs: int = 4
    """Key-value pairs in a sequence."""
    length: int = 64
    """Tokens in a sequence."""
    vocab: int = 8192
    """Size of the vocabulary."""
    power_a: float = 0.01
    """Exponent of the power law of the gaps: 1 is uniform, and below 1 short gaps are more
    frequent."""
    random_filler: bool = False
    """Pad with random tokens of the full vocabulary instead of token 0."""

    def check(self) -> None:
        if self.pairs < 1:
            raise ConfigError(f"--pairs is {self.pairs}: it must be at least 1")
        if self.length % 2 or self.length < 4 * self.pairs:
            raise ConfigError(
                f"--length is {self.length}: --pairs {self.pairs} and their queries take an even "
                f"length of at least {4 * self.pairs}"
            )
        if self.vocab // 2 - 1 < self.pairs:
            raise ConfigError(
                f"--pairs is {self.pairs} and the vocabulary of --vocab {self.vocab} has only "
                f"{max(self.vocab // 2 - 1, 0)} keys: lower --pairs or raise --vocab"
            )
        if not 0 < self.power_a < np.inf:
            raise ConfigError(f"--power-a is {self.power_a}: it must be above 0")

    @property
    def token_count(self) -> int:
        return self.vocab

    @property
    def positions(self) -> int:
        return self.length

    def draw(self, rng: np.random.Generator, count: int) -> Examples:
        keys = self.vocab // 2  # token 0 and the keys are below it
        keys_PN = 1 + distinct(rng, keys - 1, self.pairs, count)
        values_PN = keys + distinct(rng, self.vocab - keys, self.pairs, count)
        asked_PN = 2 * (self.pairs + self._slots(rng, count))
        tokens_LN = np.zeros((self.length, count), dtype=np.int32)
        if self.random_filler:
            tokens_LN[:] = rng.integers(0, self.vocab, tokens_LN.shape)
        context, every = 2 * self.pairs, np.arange(count)
        tokens_LN[0:context:2], tokens_LN[1:context:2] = keys_PN, values_PN
        tokens_LN[asked_PN, every] = keys_PN
        labels_LN = np.full(tokens_LN.shape, IGNORE_INDEX, dtype=np.int32)
        labels_LN[asked_PN, every] = values_PN
        distance_LN = np.zeros_like(tokens_LN)
        distance_LN[asked_PN, every] = octave(asked_PN - np.arange(0, context, 2)[:, None])
        return Examples(tokens_LN.T, labels_LN.T, {"distance": distance_LN.T})

    def _slots(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Return (pairs, count): the slot of each key. The order of exponential waiting times with
        the slots' weights as rates is a draw without replacement."""
        slots = self.length // 2 - self.pairs
        weights = np.arange(1, slots + 1) ** (self.power_a - 1)
        times_SN = rng.standard_exponential((slots, count)) / weights[:, None]
        return np.argsort(times_SN, axis=0)[: self.pairs]

    def token_name(self, token: int) -> str:
        return "_" if token == 0 else str(token)
