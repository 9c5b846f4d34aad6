"""MAD's fuzzy in-context recall: keys and values of several tokens; where a key is repeated, its
value is the label.

    tokens  _ 2 0 7 1 4 5 2 0 7 1 4     (keys of tokens 0..3, values of tokens 4..8)
    labels  . . . . . . . . 7 . 4 5

From Poli et al. (arXiv 2403.17844), with the defaults of their code (athms/mad-lab, multi-query). A
key has 1 to `key_tokens` different tokens and a value 1 to `value_tokens`, all equally likely; `2
0` is a different key from `0 2` and `2`. Each key has one value in a sequence, drawn anew for every
sequence. The last pair repeats an earlier one, and its last token is a label only. A sequence is
padded on the left.

MAD tests with keys of the largest size alone; here accuracy is by the size of the key.

Shapes: N examples, S pairs, A tokens of a key, B tokens of a value, T = A + B, L positions.
"""

from dataclasses import dataclass

import numpy as np

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.errors import ConfigError
from mixit_titan.tasks.distinct import distinct
from mixit_titan.tasks.examples import Examples
from mixit_titan.tasks.task import Task

_NONE = -1  # a key or a value has no further token


@dataclass(frozen=True, kw_only=True)
class MadFuzzyRecall(Task):
    """Recall values by keys, both of several tokens."""

    vocab: int = 16
    """Size of the vocabulary: key tokens, as many value tokens, and the padding token."""
    length: int = 128
    """Tokens in a sequence."""
    key_tokens: int = 3
    """The maximum number of tokens in a key."""
    value_tokens: int = 3
    """The maximum number of tokens in a value."""

    def check(self) -> None:
        if not 1 <= self.key_tokens <= self._keys:
            raise ConfigError(
                f"--key-tokens is {self.key_tokens}: keys of --vocab {self.vocab} have at least 1 "
                f"and at most {self._keys} different tokens"
            )
        if not 1 <= self.value_tokens <= self.vocab - 1 - self._keys:
            raise ConfigError(
                f"--value-tokens is {self.value_tokens}: values of --vocab {self.vocab} have at "
                f"least 1 and at most {self.vocab - 1 - self._keys} different tokens"
            )
        if self._room < self._largest:
            raise ConfigError(
                f"--length is {self.length}: two pairs of at most {self._largest} tokens take at "
                f"least {2 * self._largest - 1}"
            )

    @property
    def _keys(self) -> int:
        return (self.vocab - 1) // 2

    @property
    def _largest(self) -> int:
        return self.key_tokens + self.value_tokens

    @property
    def _room(self) -> int:
        """Return how many tokens the pairs before the last one can have."""
        return self.length + 1 - self._largest

    @property
    def token_count(self) -> int:
        return self.vocab

    @property
    def positions(self) -> int:
        return self.length

    def draw(self, rng: np.random.Generator, count: int) -> Examples:
        slots = self._room // 2  # as many pairs as there can be
        keys_ASN = _motifs(rng, self._keys, self.key_tokens, (slots, count))
        values_BSN = _motifs(rng, self.vocab - 1 - self._keys, self.value_tokens, (slots, count))
        values_BSN[values_BSN != _NONE] += self._keys
        again_SN = _repeat_values(keys_ASN, values_BSN)
        pairs_TSN = np.concatenate([keys_ASN, values_BSN])
        there_SN = (pairs_TSN != _NONE).sum(0).cumsum(0) <= self._room
        last_N = (rng.random(count) * there_SN.sum(0)).astype(np.int64)
        last_T1N = pairs_TSN[:, last_N, np.arange(count)][:, None]
        pairs_TSN = np.concatenate([np.where(there_SN, pairs_TSN, _NONE), last_T1N], axis=1)
        again_SN = np.concatenate([again_SN, np.ones((1, count), dtype=bool)])
        return self._in_a_row(pairs_TSN, again_SN)

    def _in_a_row(self, pairs_TSN: np.ndarray, again_SN: np.ndarray) -> Examples:
        """Return the tokens of the pairs in a row, aligned to the right end of each sequence."""
        size_SN = (pairs_TSN[: self.key_tokens] != _NONE).sum(0, dtype=np.int32)
        asked_TSN = np.zeros_like(pairs_TSN)  # the size of the key where a value is the label
        asked_TSN[self.key_tokens :] = size_SN * again_SN
        pairs_NST, asked_NST = pairs_TSN.transpose(2, 1, 0), asked_TSN.transpose(2, 1, 0)
        is_token_NST = pairs_NST != _NONE
        tokens = np.full((len(pairs_NST), self.length + 1), self.vocab - 1, dtype=np.int32)
        asked = np.zeros_like(tokens)
        free_N1 = self.length + 1 - is_token_NST.sum((1, 2))[:, None]
        filled = np.arange(self.length + 1) >= free_N1
        tokens[filled], asked[filled] = pairs_NST[is_token_NST], asked_NST[is_token_NST]
        labels = np.where(asked > 0, tokens, IGNORE_INDEX)
        return Examples(tokens[:, :-1], labels[:, 1:], {"key_tokens": asked[:, 1:]})

    def token_name(self, token: int) -> str:
        return "_" if token == self.vocab - 1 else str(token)


def _motifs(
    rng: np.random.Generator, among: int, largest: int, shape: tuple[int, int]
) -> np.ndarray:
    """Return (largest, *shape): 1 to `largest` different tokens, then _NONE."""
    tokens = distinct(rng, among, largest, shape[0] * shape[1]).reshape(largest, *shape)
    sizes = rng.integers(1, largest + 1, shape)
    return np.where(np.arange(largest)[:, None, None] < sizes, tokens, _NONE)


def _repeat_values(keys_ASN: np.ndarray, values_BSN: np.ndarray) -> np.ndarray:
    """Give each key the value that it had before, and return whether it had one."""
    again_SN = np.zeros(keys_ASN.shape[1:], dtype=bool)
    for slot in range(1, len(again_SN)):
        same_SN = (keys_ASN[:, :slot] == keys_ASN[:, slot, None]).all(0)
        again_SN[slot] = same_SN.any(0)
        columns = np.flatnonzero(again_SN[slot])
        first = same_SN[:, columns].argmax(0)
        values_BSN[:, slot, columns] = values_BSN[:, first, columns]
    return again_SN
