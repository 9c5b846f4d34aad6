"""Texts to token ids, by the library that defines the ids: tiktoken, tokenizers, or bytes."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from torchtitan.components.tokenizer import BaseTokenizer, HuggingFaceTokenizer

from mixit_titan.data.rank_tokenizer import RankTokenizer

_SEARCHED = 2**16  # characters that tiktoken can always search


class EncodedBatch(NamedTuple):
    """Documents of one split, in their order."""

    split: str
    tokens: np.ndarray
    """The tokens of all documents, each followed by its end-of-text id."""
    lengths: np.ndarray
    """Tokens of each document."""
    bytes: np.ndarray
    """Bytes of each text in UTF-8."""


class Encoder:
    """Encodes text alone: no token is added except the end of text, and what looks like a special
    token is text."""

    def __init__(self, tokenizer: BaseTokenizer, dtype: np.dtype) -> None:
        self.tokenizer, self.dtype = tokenizer, dtype
        self.name = "bytes"
        if isinstance(tokenizer, HuggingFaceTokenizer):
            self.name = "tokenizers"
            tokenizer.tokenizer.encode_special_tokens = True
        elif isinstance(tokenizer, RankTokenizer):
            self.name = "tiktoken"

    def encode(self, texts: Iterable[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of all texts, each followed by its end-of-text id, and the length of each."""
        parts = [self.ids(str(text, "utf-8")) for text in texts]
        lengths = np.array([len(part) + 1 for part in parts], dtype=np.int64)
        tokens = np.full(lengths.sum(), self.tokenizer.eos_id, dtype=self.dtype)
        for part, end in zip(parts, np.cumsum(lengths), strict=True):
            tokens[end - 1 - len(part) : end - 1] = part
        return tokens, lengths

    def ids(self, text: str) -> Sequence[int] | np.ndarray:
        """The ids of one text, without an end-of-text id."""
        if isinstance(self.tokenizer, HuggingFaceTokenizer):
            return self.tokenizer.tokenizer.encode(text, add_special_tokens=False).ids
        if isinstance(self.tokenizer, RankTokenizer):
            return self._by_ranks(text)
        return np.frombuffer(text.encode(), dtype=np.uint8)

    def _by_ranks(self, text: str) -> np.ndarray:
        """The ids without a Python number for each."""
        try:
            return self.tokenizer.encoding.encode_to_numpy(text, disallowed_special=())
        except ValueError:  # tiktoken 0.14's search gives up on about a million spaces in a row
            half = len(text) // 2
            if half < _SEARCHED:
                raise
            return np.concatenate([self._by_ranks(text[:half]), self._by_ranks(text[half:])])
