"""Rows of tokens from documents: one document per row, or all documents as a stream.

A row of L inputs has L labels, each the token after its input. A label that is not a token of the
same document (padding, or the first token of the next document) is ignored in the loss. With
documents `a b .` and `c d .` (`.` ends a document, `-` is ignored) and L = 4:

    packing     inputs     labels     positions
    documents   a b . .    b . - -    0 1 2 3
                c d . .    d . - -    0 1 2 3
    stream      a b . c    b . - d    0 1 2 0
                d . . .    . - - -    0 1 2 3
"""

from typing import Literal

import numpy as np

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.data.shards import TokenSplit
from mixit_titan.errors import ConfigError

Packing = Literal["documents", "stream"]
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Inputs, labels and positions, each of shape (rows, L)."""


class DocumentRows:
    """Row i is document i, cut to L + 1 tokens and padded with end-of-text."""

    def __init__(self, split: TokenSplit, seq_len: int) -> None:
        self.split, self.seq_len = split, seq_len
        self.rows = split.documents
        if self.rows < 1:
            raise ConfigError(f"{split.folder} has no {split.name} document: prepare more text")

    def read(self, indices: np.ndarray) -> Rows:
        """These rows."""
        starts, stops = self.split.bounds(indices)
        stops = np.minimum(stops, starts + self.seq_len + 1)
        inputs, labels = _read(self.split, starts, stops, self.seq_len)
        return inputs, labels, np.broadcast_to(np.arange(self.seq_len), inputs.shape)


class StreamRows:
    """The documents one after another, cut into rows of L; only the last row is padded.

    Positions restart at each document and at each row: a document that continues in the next row
    starts again there, because nothing of the previous row is visible.
    """

    def __init__(self, split: TokenSplit, seq_len: int) -> None:
        self.split, self.seq_len = split, seq_len
        self.rows = -(-(split.tokens - 1) // seq_len)
        if split.tokens <= seq_len:
            raise ConfigError(
                f"{split.folder} has {split.tokens} {split.name} tokens, fewer than one row of "
                f"training.seq_len = {seq_len}: prepare more text, or lower training.seq_len"
            )

    def read(self, indices: np.ndarray) -> Rows:
        """These rows."""
        starts = indices * self.seq_len
        stops = np.minimum(starts + self.seq_len + 1, self.split.tokens)
        inputs, labels = _read(self.split, starts, stops, self.seq_len)
        rows, begins = self._begins(starts, stops)
        labels[rows, begins - 1] = IGNORE_INDEX
        inside = begins < self.seq_len
        return inputs, labels, _positions(rows[inside], begins[inside], inputs.shape)

    def _begins(self, starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The documents that begin within the rows, except at a row's first token: the row of each,
        and the column."""
        low = self.split.documents_before(starts + 1)
        counts = self.split.documents_before(stops) - low
        rows = np.repeat(np.arange(len(starts)), counts)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows, self.split.bounds(low[rows] + nth)[0] - starts[rows]


def _positions(rows: np.ndarray, begins: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """0, 1, 2, ... from the beginning of each row and from each of `begins` in its row."""
    count, length = shape
    firsts = np.sort(np.concatenate([np.arange(count) * length, rows * length + begins]))
    lengths = np.diff(firsts, append=count * length)
    return (np.arange(count * length) - np.repeat(firsts, lengths)).reshape(shape)


def _read(
    split: TokenSplit, starts: np.ndarray, stops: np.ndarray, seq_len: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the tokens start..stop: all but the last are inputs, all but the first are labels."""
    inputs = np.empty((len(starts), seq_len), dtype=np.int64)
    labels = np.empty((len(starts), seq_len), dtype=np.int64)
    for row, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        tokens, length = split.read(start, stop), stop - start - 1
        inputs[row, :length], inputs[row, length:] = tokens[:-1], split.eos_id
        labels[row, :length], labels[row, length:] = tokens[1:], IGNORE_INDEX
    if max(inputs.max(initial=0), labels.max(initial=0)) >= split.vocab:
        raise split.changed(f"an id that is not among the {split.vocab:,} of its tokenizer")
    return inputs, labels


PACKINGS: dict[str, type[DocumentRows] | type[StreamRows]] = {
    "documents": DocumentRows,
    "stream": StreamRows,
}
