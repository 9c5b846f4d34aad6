"""Polarity of reviews: is a text positive or negative?

    question  what a treat , the best noodles in town
    answer    1

The input is the first `length` words, padded on the right, and a linear head on the mean of the
last hidden states predicts the label. Labels are those of the file, as they are written there. The
reviews come from `--csv FILE` with a label and a text column, or from the hub's Yelp polarity set.
"""

import functools
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from mixit_titan.errors import ConfigError
from mixit_titan.ranges import Range
from mixit_titan.tasks.examples import Examples, Listed, Stream
from mixit_titan.tasks.reviews import (
    Reviews,
    frequent_words,
    load_hub,
    read_csv,
    split_by_text,
    words_of,
)
from mixit_titan.tasks.task import Task

PADDING, OTHER = 0, 1
_FIRST_WORD = 2


@dataclass(frozen=True, kw_only=True)
class Yelp(Task):
    """Classify reviews as positive or negative."""

    csv: str | None = None
    """A CSV file with a header (default: the Yelp polarity set from the hub)."""
    label_column: str = "label"
    """The column with the label."""
    text_column: str = "text"
    """The column with the text of the review."""
    length: Annotated[int, Range(least=1, most=10_000)] = 256
    """Words that a review is cut to."""
    vocab: Annotated[int, Range(least=_FIRST_WORD + 1, most=2**24)] = 16384
    """Size of the vocabulary: the most frequent words of the training reviews."""

    @property
    def token_count(self) -> int:
        return self.vocab

    @property
    def positions(self) -> int:
        return self.length

    @property
    def classes(self) -> int:
        return len(self._labels)

    @property
    def padding(self) -> int:
        return PADDING

    @property
    def may_look_ahead(self) -> bool:
        return True

    def split(self, *, seed: int, train: int, test: int) -> tuple[Stream, Examples]:
        """Split the reviews, which is the same for every seed; 0 means all of a side. Few reviews
        may leave none for testing."""
        trained, tested = (
            side[: count or None] for side, count in zip(self._reviews, (train, test), strict=True)
        )
        if not trained:
            raise ConfigError(f"{self.csv} has no review to train on: one in eight is for testing")
        return Listed(self._encode(trained), seed), self._encode(tested)

    def token_name(self, token: int) -> str:
        return self._words[token - _FIRST_WORD] if token >= _FIRST_WORD else ["", "?"][token]

    def write(self, tokens_L: np.ndarray, labels_L: np.ndarray) -> tuple[str, str]:
        question = " ".join(self.token_name(token) for token in tokens_L if token != PADDING)
        return question, self._labels[labels_L[0]]

    @functools.cached_property
    def _reviews(self) -> tuple[Reviews, Reviews]:
        if self.csv is None:
            return load_hub()
        return split_by_text(read_csv(self.csv, self.label_column, self.text_column))

    @functools.cached_property
    def _labels(self) -> list[str]:
        return sorted({label for side in self._reviews for label, _ in side})

    @functools.cached_property
    def _words(self) -> list[str]:
        return frequent_words(self._reviews[0], self.vocab - _FIRST_WORD)

    def _encode(self, reviews: Reviews) -> Examples:
        ids = {word: n + _FIRST_WORD for n, word in enumerate(self._words)}
        tokens = np.full((len(reviews), self.length), PADDING, dtype=np.int32)
        for row, (_, text) in zip(tokens, reviews, strict=True):
            found = [ids.get(word, OTHER) for word in words_of(text)[: self.length]]
            row[: len(found)] = found
        labels = np.array([[self._labels.index(label)] for label, _ in reviews])
        return Examples(tokens, labels)
