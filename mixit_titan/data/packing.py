"""Rows of tokens out of documents: one document a row, or all documents in a stream.

A row of L inputs has L labels, each the token after its input. What is no token of the same
document after it (padding, the first token of the next document) is ignored in the loss.
"""

from typing import Literal

import numpy as np
from torchtitan.components.loss import IGNORE_INDEX

from mixit_titan.data.shards import TokenSplit
from mixit_titan.errors import ConfigError

Packing = Literal["documents", "stream"]
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Inputs, labels and positions, each of shape (rows, L)."""


class DocumentRows:
    """Row i is document i, cut to L + 1 tokens, padded with end-of-text."""

    def __init__(self, split: TokenSplit, seq_len: int) -> None:
        self.split, self.seq_len = split, seq_len
        self.rows = split.documents
        if self.rows < 1:
            raise ConfigError(f"{split.folder} has no {split.name} document: prepare more text")

    def read(self, indices: np.ndarray) -> Rows:
        starts, stops = self.split.bounds(indices)
        stops = np.minimum(stops, starts + self.seq_len + 1)
        inputs, labels = _read(self.split, starts, stops, self.seq_len)
        return inputs, labels, np.tile(np.arange(self.seq_len), (len(indices), 1))


class StreamRows:
    """The documents one after another, cut into rows of L; only the last one is padded.

    Positions restart at each document, and at each row: a document that goes on in the next row
    starts anew there, because nothing of the row before is visible.
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
        starts = indices * self.seq_len
        stops = np.minimum(starts + self.seq_len + 1, self.split.tokens)
        inputs, labels = _read(self.split, starts, stops, self.seq_len)
        begins = np.zeros_like(inputs)  # where the document of each token begins in the row
        for row, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            first = self.split.document_starts(start + 1, stop) - start
            labels[row, first - 1] = IGNORE_INDEX
            first = first[first < self.seq_len]
            begins[row, first] = first
        return inputs, labels, np.arange(self.seq_len) - np.maximum.accumulate(begins, axis=1)


def _read(
    split: TokenSplit, starts: np.ndarray, stops: np.ndarray, seq_len: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the tokens start..stop: all but the last are inputs, all but the first labels."""
    inputs = np.full((len(starts), seq_len), split.eos_id, dtype=np.int64)
    labels = np.full((len(starts), seq_len), IGNORE_INDEX, dtype=np.int64)
    for row, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        tokens = split.read(start, stop)
        inputs[row, : stop - start - 1] = tokens[:-1]
        labels[row, : stop - start - 1] = tokens[1:]
    return inputs, labels


PACKINGS: dict[str, type[DocumentRows] | type[StreamRows]] = {
    "documents": DocumentRows,
    "stream": StreamRows,
}
