"""The sequences that an analyzed model reads: test examples of its task, or pieces of text.

Shapes: N sequences, L positions.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torchtitan.components.tokenizer import BaseTokenizer

from mixit_titan.data.encoding import Encoder
from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.errors import ConfigError
from mixit_titan.tasks.examples import Examples

_BATCH = 8


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """Token sequences, padded to one length."""

    tokens_NL: torch.Tensor
    lengths_N: torch.Tensor
    """The length of each sequence; the rest of its row is padding."""
    asked_NL: torch.Tensor
    """The positions at which the model has to answer."""
    source: str
    """Where they come from: `retrieval's test set`, `the run's validation data`."""

    def __len__(self) -> int:
        return len(self.tokens_NL)

    @property
    def described(self) -> str:
        """`64 sequences of 4 to 20 tokens from the run's validation data`."""
        lengths = sorted({int(self.lengths_N.min()), int(self.lengths_N.max())})
        size = " to ".join(map(str, lengths))
        return f"{len(self)} sequences of {size} tokens from {self.source}"

    def take(self, rows: slice) -> "Sequences":
        """Some of the sequences."""
        return replace(
            self,
            tokens_NL=self.tokens_NL[rows],
            lengths_N=self.lengths_N[rows],
            asked_NL=self.asked_NL[rows],
        )

    def batches(self) -> Iterator["Sequences"]:
        """The sequences in batches that fit a forward pass."""
        for first in range(0, len(self), _BATCH):
            yield self.take(slice(first, first + _BATCH))

    def row(self, n: int) -> torch.Tensor:
        """The tokens of one sequence without padding, (1, length)."""
        return self.tokens_NL[n : n + 1, : self.lengths_N[n]]


def plain_sequences(tokens_NL: torch.Tensor, source: str) -> Sequences:
    """Sequences of one length, where every position counts as one that has to be answered."""
    count, length = tokens_NL.shape
    return Sequences(
        tokens_NL=tokens_NL,
        lengths_N=torch.full((count,), length),
        asked_NL=torch.ones(count, length, dtype=torch.bool),
        source=source,
    )


def task_sequences(examples: Examples, padding: int | None, source: str) -> Sequences:
    """Examples, each cut after its last labeled position. In a task with one label per sequence,
    every position but the padding counts as labeled."""
    tokens = torch.from_numpy(np.ascontiguousarray(examples.tokens)).long()
    labels = torch.from_numpy(np.ascontiguousarray(examples.labels))
    if labels.shape == tokens.shape:
        asked = labels != IGNORE_INDEX
    else:
        asked = torch.ones_like(tokens, dtype=torch.bool) if padding is None else tokens != padding
    last_N = (asked * torch.arange(tokens.shape[1])).amax(1)
    return Sequences(tokens_NL=tokens, lengths_N=last_N + 1, asked_NL=asked, source=source)


def text_sequences(
    texts: Iterable[bytes], tokenizer: BaseTokenizer, *, count: int, length: int, source: str
) -> Sequences:
    """The beginning of the texts, cut into at most `count` sequences of `length` tokens."""
    encoder = Encoder(tokenizer, np.dtype(np.int64))
    ids: list[int] = []
    for text in texts:
        ids.extend(int(token) for token in encoder.ids(text.decode()))
        if len(ids) >= count * length:
            break
    return cut(np.array(ids, dtype=np.int64), count=count, length=length, source=source)


def cut(ids: np.ndarray, *, count: int, length: int, source: str) -> Sequences:
    """Cut token ids into sequences of `length`, or one shorter sequence if there are too few."""
    length = min(length, len(ids))
    if length < 2:
        raise ConfigError(f"{source} has too little text: at least 2 tokens are needed")
    count = min(count, len(ids) // length)
    tokens = torch.from_numpy(ids[: count * length].astype(np.int64)).view(count, length)
    return plain_sequences(tokens, source)
