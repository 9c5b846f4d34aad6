"""MAD's compression: reproduce all tokens of a sequence from the last hidden state alone.

    tokens  5 0 3 3 |
    labels  5 0 3 3 .

From Poli et al. (arXiv 2403.17844), with the defaults of their code (athms/mad-lab). A decoder gets
the state at the bar and a position, and must give the token there (bottleneck.py). MAD's figures
count the bar too, which is always right; here it has no label.
"""

from dataclasses import dataclass

import numpy as np

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.errors import ConfigError
from mixit_titan.tasks.examples import Examples
from mixit_titan.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class MadCompression(Task):
    """Reproduce a sequence from one hidden state."""

    vocab: int = 16
    """Size of the vocabulary, including the bar."""
    length: int = 32
    """Tokens in a sequence, including the bar."""

    def check(self) -> None:
        if self.vocab < 3:
            raise ConfigError(f"--vocab is {self.vocab}: two tokens and the bar need at least 3")
        if self.length < 2:
            raise ConfigError(f"--length is {self.length}: a token and the bar need at least 2")

    @property
    def token_count(self) -> int:
        return self.vocab

    @property
    def positions(self) -> int:
        return self.length

    @property
    def bottleneck(self) -> bool:
        return True

    def draw(self, rng: np.random.Generator, count: int) -> Examples:
        tokens = rng.integers(0, self.vocab - 1, (count, self.length), dtype=np.int32)
        tokens[:, -1] = self.vocab - 1
        labels = tokens.copy()
        labels[:, -1] = IGNORE_INDEX
        return Examples(tokens, labels)

    def token_name(self, token: int) -> str:
        return "|" if token == self.vocab - 1 else str(token)
