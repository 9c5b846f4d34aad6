"""What a model reads while it is looked at: test examples of its task, or pieces of text.

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
    tokens_NL: torch.Tensor
    lengths_N: torch.Tensor
    """What follows is padding."""
    asked_NL: torch.Tensor
    """Where the model must say something."""
    source: str
    """`retrieval`, `the run's validation data`"""

    def __len__(self) -> int:
        return len(self.tokens_NL)

    @property
    def described(self) -> str:
        lengths = sorted({int(self.lengths_N.min()), int(self.lengths_N.max())})
        return f"{len(self)} sequences of {' to '.join(map(str, lengths))} tokens of {self.source}"

    def take(self, rows: slice) -> "Sequences":
        return replace(
            self,
            tokens_NL=self.tokens_NL[rows],
            lengths_N=self.lengths_N[rows],
            asked_NL=self.asked_NL[rows],
        )

    def batches(self) -> Iterator["Sequences"]:
        for first in range(0, len(self), _BATCH):
            yield self.take(slice(first, first + _BATCH))

    def row(self, n: int) -> torch.Tensor:
        """Tokens of one sequence, (1, its own length)."""
        return self.tokens_NL[n : n + 1, : self.lengths_N[n]]


def plain_sequences(tokens_NL: torch.Tensor, source: str) -> Sequences:
    """Of one length, asked everywhere."""
    count, length = tokens_NL.shape
    return Sequences(
        tokens_NL=tokens_NL,
        lengths_N=torch.full((count,), length),
        asked_NL=torch.ones(count, length, dtype=torch.bool),
        source=source,
    )


def task_sequences(examples: Examples, padding: int | None, source: str) -> Sequences:
    """Examples up to their last question. What asks about the whole sequence asks everywhere but at
    its padding."""
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
    """The beginning of the texts in pieces of `length`, at most `count` of them."""
    encoder = Encoder(tokenizer, np.dtype(np.int64))
    ids: list[int] = []
    for text in texts:
        ids.extend(int(token) for token in encoder.ids(text.decode()))
        if len(ids) >= count * length:
            break
    return cut(np.array(ids, dtype=np.int64), count=count, length=length, source=source)


def cut(ids: np.ndarray, *, count: int, length: int, source: str) -> Sequences:
    """One piece that is shorter, if there is not enough for a whole one."""
    length = min(length, len(ids))
    if length < 2:
        raise ConfigError(f"{source} has no text: it takes 2 tokens at least")
    count = min(count, len(ids) // length)
    tokens = torch.from_numpy(ids[: count * length].astype(np.int64)).view(count, length)
    return plain_sequences(tokens, source)
