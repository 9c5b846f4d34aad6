"""MAD's selective copying: repeat the tokens of a sequence in order, without the blanks.

    tokens  _ 3 _ _ 1 2 | _ _ _
    labels  . . . . . . . 3 1 2

From Poli et al. (arXiv 2403.17844), with the defaults of their code (athms/mad-lab). Tokens are
drawn with replacement. Each blank is put before one of them, chosen uniformly, so the last token
stands right before the bar that asks for the copy.
"""

from dataclasses import dataclass

import numpy as np

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.errors import ConfigError
from mixit_titan.tasks.examples import Examples
from mixit_titan.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class MadSelectiveCopying(Task):
    """Copy the tokens of a sequence and skip its blanks."""

    vocab: int = 16
    """Size of the vocabulary, including the bar and the blank."""
    length: int = 256
    """Tokens in a sequence, including the positions of the copy."""
    copies: int = 16
    """Tokens to copy."""

    def check(self) -> None:
        if self.vocab < 3:
            raise ConfigError(f"--vocab is {self.vocab}: a token, a blank and a bar need 3")
        if self.copies < 1:
            raise ConfigError(f"--copies is {self.copies}: it must be at least 1")
        if self.length < 2 * self.copies + 2:
            raise ConfigError(
                f"--length is {self.length}: --copies {self.copies} of tokens, a bar and a blank "
                f"take at least {2 * self.copies + 2}"
            )

    @property
    def token_count(self) -> int:
        return self.vocab

    @property
    def positions(self) -> int:
        return self.length

    def draw(self, rng: np.random.Generator, count: int) -> Examples:
        blank, bar = self.vocab - 2, self.vocab - 1
        copied_NC = rng.integers(0, blank, (count, self.copies), dtype=np.int32)
        blanks = self.length - 2 * self.copies - 1
        before_NC = rng.multinomial(blanks, np.full(self.copies, 1 / self.copies), count)
        places_NC = before_NC.cumsum(1) + np.arange(self.copies)
        tokens = np.full((count, self.length), blank, dtype=np.int32)
        np.put_along_axis(tokens, places_NC, copied_NC, axis=1)
        tokens[:, -self.copies - 1] = bar
        labels = np.full(tokens.shape, IGNORE_INDEX, dtype=np.int32)
        labels[:, -self.copies :] = copied_NC
        return Examples(tokens, labels)

    def token_name(self, token: int) -> str:
        return {self.vocab - 2: "_", self.vocab - 1: "|"}.get(token, str(token))
