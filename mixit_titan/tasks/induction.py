"""Induction at a distance: a pattern, random tokens, and the pattern again, whose tokens are the
labels.

    tokens  5 2 7 1 0 5 4 2 7     (a pattern of 3, repeated after 3 random tokens)
    labels  . . . . . . . 7 1

The number of random tokens between the two is drawn for each sequence, uniformly from
min_gap..max_gap. The remaining ones, up to max_gap, stand before the pattern, so that the repeat is
always at the end and only the position of the original is unknown. All tokens of a pattern are
different, and none of the random ones is in it.
"""

from dataclasses import dataclass

import numpy as np

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.errors import ConfigError
from mixit_titan.tasks.distinct import distinct
from mixit_titan.tasks.examples import Examples, octave
from mixit_titan.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class Induction(Task):
    """Repeat a pattern seen earlier, after a gap of random tokens."""

    pattern: int = 4
    """Tokens in the pattern; all but its first are labels."""
    min_gap: int = 0
    """The minimum number of random tokens between the pattern and its repetition."""
    max_gap: int = 57
    """The maximum number of them; the distance is fixed if --min-gap is the same."""
    vocab: int = 64
    """Size of the vocabulary."""

    def check(self) -> None:
        if self.pattern < 2:
            raise ConfigError(f"--pattern is {self.pattern}: it must be at least 2")
        if not 0 <= self.min_gap <= self.max_gap:
            raise ConfigError(
                f"--min-gap is {self.min_gap}: it must be in 0..{self.max_gap}, the --max-gap"
            )
        if self.vocab <= self.pattern:
            raise ConfigError(
                f"--vocab is {self.vocab}: --pattern {self.pattern} and the random tokens need at "
                f"least {self.pattern + 1}"
            )

    @property
    def token_count(self) -> int:
        return self.vocab

    @property
    def positions(self) -> int:
        return self.max_gap + 2 * self.pattern - 1

    @property
    def length_key(self) -> str:
        return "max_gap"

    def draw(self, rng: np.random.Generator, count: int) -> Examples:
        gap_N = rng.integers(self.min_gap, self.max_gap + 1, count)
        pattern_PN = distinct(rng, self.vocab, self.pattern, count)
        tokens_LN = self._others(rng, pattern_PN)
        first_PN = self.max_gap - gap_N + np.arange(self.pattern)[:, None]
        tokens_LN[first_PN, np.arange(count)] = pattern_PN
        asked = self.pattern - 1
        tokens_LN[-asked:] = pattern_PN[:-1]
        labels_LN = np.full(tokens_LN.shape, IGNORE_INDEX, dtype=np.int32)
        labels_LN[-asked:] = pattern_PN[1:]
        return Examples(tokens_LN.T, labels_LN.T, {"gap": octave(gap_N)[:, None]})

    def _others(self, rng: np.random.Generator, pattern_PN: np.ndarray) -> np.ndarray:
        """Return random tokens that are not in the pattern: numbers below vocab - pattern, from
        which each token of the pattern, the lowest first, shifts all that are not below it up by
        one."""
        shape = (self.positions, pattern_PN.shape[1])
        tokens_LN = rng.integers(0, self.vocab - self.pattern, shape, dtype=np.int32)
        for token_N in np.sort(pattern_PN, axis=0):
            tokens_LN += tokens_LN >= token_N
        return tokens_LN
