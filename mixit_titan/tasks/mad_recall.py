"""MAD's in-context recall: pairs whose keys are repeated; where one is, its value is the label.

    tokens  1 6 3 4 1 6 3     (keys 0..3, values 4..7)
    labels  . . . . 6 . 4

From Poli et al., "Mechanistic Design and Scaling of Hybrid Architectures" (arXiv 2403.17844), with
the defaults of their code (athms/mad-lab, multi-query). Each key has one value in a sequence, drawn
anew for every sequence; different keys may share one. Keys are drawn with replacement; the last one
is drawn from those already seen, and its value, the last token of the sequence, is a label only.

MAD trains on every next token and tests on the recalled values; here both use the recalled values.
"""

from dataclasses import dataclass

import numpy as np

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.errors import ConfigError
from mixit_titan.tasks.examples import Examples
from mixit_titan.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class MadRecall(Task):
    """Recall values by keys."""

    vocab: int = 16
    """Size of the vocabulary: the lower half are keys, the upper half are values."""
    length: int = 128
    """Tokens in a sequence, including the last value."""

    def check(self) -> None:
        if self.length < 4 or self.length % 2:
            raise ConfigError(
                f"--length is {self.length}: pairs of tokens take an even length of at least 4"
            )
        if self.vocab < 2:
            raise ConfigError(f"--vocab is {self.vocab}: a key and a value need at least 2")

    @property
    def token_count(self) -> int:
        return self.vocab

    @property
    def positions(self) -> int:
        return self.length - 1

    def draw(self, rng: np.random.Generator, count: int) -> Examples:
        is_pair_SN = np.ones((self.length // 2, count), dtype=bool)
        return draw_pairs(rng, self.vocab, is_pair_SN)


def draw_pairs(rng: np.random.Generator, vocab: int, is_pair_SN: np.ndarray) -> Examples:
    """Draw sequences of S slots of two tokens, some of which hold a pair, the last one among them.
    What the other slots hold carries no meaning and has no label."""
    slots, count = is_pair_SN.shape
    keys, every = vocab // 2, np.arange(count)
    value_KN = rng.integers(keys, vocab, (keys, count), dtype=np.int32)
    keys_SN = rng.integers(0, keys, (slots, count), dtype=np.int32)
    seen_KN = np.zeros((keys, count), dtype=bool)
    again_SN = np.ones((slots, count), dtype=bool)
    for slot in range(slots - 1):
        again_SN[slot] = seen_KN[keys_SN[slot], every] & is_pair_SN[slot]
        seen_KN[keys_SN[slot], every] |= is_pair_SN[slot]
    keys_SN[-1] = np.argmax(rng.random((keys, count)) * seen_KN, axis=0)
    values_SN = value_KN[keys_SN, every]
    tokens_LN = np.empty((2 * slots - 1, count), dtype=np.int32)
    tokens_LN[0::2], tokens_LN[1::2] = keys_SN, values_SN[:-1]
    labels_LN = np.full(tokens_LN.shape, IGNORE_INDEX, dtype=np.int32)
    labels_LN[0::2] = np.where(again_SN, values_SN, IGNORE_INDEX)
    return Examples(tokens_LN.T, labels_LN.T)
