"""Rows that are stretches of a stream of documents: how many documents they have, and how much of
a row's triangle is within them. Expected values, by renewal theory."""

import math
from dataclasses import dataclass
from statistics import NormalDist

from mixit_titan.kernels.forms import BLOCK, blocks

_NORMAL = NormalDist()


@dataclass(frozen=True)
class Packing:
    """Lengths of documents are lognormal. A row begins within a document and ends within one."""

    median: float
    sigma: float
    """Of the logarithm."""

    @property
    def mean(self) -> float:
        return self.median * math.exp(self.sigma**2 / 2)

    def together(self, apart: float) -> float:
        """How probable it is that two tokens so far apart are of one document: E max(X - apart, 0)
        / E X. It is also how probable it is that the first document of a row has so many tokens."""
        far = self._deviations(apart)
        return _NORMAL.cdf(far + self.sigma) - apart / self.mean * _NORMAL.cdf(far)

    def documents(self, length: int, tokens: int) -> float:
        """That a row has with at least so many tokens: perhaps its first, and those that begin
        early enough within it."""
        longer = _NORMAL.cdf(self._deviations(tokens))
        return self.together(tokens) + (length - tokens) / self.mean * longer

    def visible(self, length: int) -> float:
        """How much of the triangle of a row is not masked, in blocks."""
        count = blocks(length)
        # Of a block of queries and a block of keys before it, the two tokens that are nearest.
        seen = sum((count - n) * self.together(max(1, (n - 1) * BLOCK + 1)) for n in range(count))
        return seen / (count * (count + 1) / 2)

    def _deviations(self, tokens: float) -> float:
        """By which a document of so many tokens is shorter than the median."""
        return math.log(self.median / max(1, tokens)) / self.sigma
