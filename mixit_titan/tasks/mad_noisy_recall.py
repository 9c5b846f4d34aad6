"""MAD's noisy in-context recall: `mad_recall` with noise between the pairs.

    tokens  1 6 9 8 3 4 8 8 1     (keys 0..3, values 4..7, noise 8 and 9)
    labels  . . . . . . . . 6

From Poli et al. (arXiv 2403.17844), with the defaults of their code (athms/mad-lab, multi-query).
The noise has a vocabulary of its own, and takes the place of a pair, two tokens at a time. One
place, anywhere before the last, always holds a pair, and so does the last.
"""

from dataclasses import dataclass

import numpy as np

from mixit_titan.errors import ConfigError
from mixit_titan.tasks.examples import Examples
from mixit_titan.tasks.mad_recall import MadRecall, draw_pairs


@dataclass(frozen=True, kw_only=True)
class MadNoisyRecall(MadRecall):
    """Recall values by keys among noise."""

    vocab: int = 32
    """Size of the vocabulary: keys, as many values, and the noise."""
    noise_vocab: int = 16
    """Tokens of the vocabulary that are noise."""
    noise_share: float = 0.2
    """Fraction of the positions for pairs that hold noise instead."""

    def check(self) -> None:
        super().check()
        if not 0 <= self.noise_share < 1:
            raise ConfigError(
                f"--noise-share is {self.noise_share}: it must be at least 0 and below 1"
            )
        if self.noise_vocab < 1 or self._pair_vocab < 2:
            raise ConfigError(
                f"--noise-vocab is {self.noise_vocab} of --vocab {self.vocab}: noise takes at "
                "least 1 token, keys and values at least 2"
            )

    @property
    def _pair_vocab(self) -> int:
        return self.vocab - self.noise_vocab

    def draw(self, rng: np.random.Generator, count: int) -> Examples:
        slots = self.length // 2
        is_pair_SN = rng.random((slots, count)) >= self.noise_share
        is_pair_SN[rng.integers(0, slots - 1, count), np.arange(count)] = True
        is_pair_SN[-1] = True
        examples = draw_pairs(rng, self._pair_vocab, is_pair_SN)
        noise_NL = rng.integers(self._pair_vocab, self.vocab, examples.tokens.shape, dtype=np.int32)
        is_pair_NL = np.repeat(is_pair_SN.T, 2, axis=1)[:, :-1]
        return Examples(np.where(is_pair_NL, examples.tokens, noise_NL), examples.labels)
