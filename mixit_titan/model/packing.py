"""Expected documents per row, and the expected share of a row's triangle that is within documents,
where rows are stretches of a stream of documents. Computed by renewal theory."""

import math
from dataclasses import dataclass
from statistics import NormalDist

from mixit_titan.kernels.forms import BLOCK, blocks

_NORMAL = NormalDist()


@dataclass(frozen=True)
class Packing:
    """Rows of documents with lognormal lengths, each row beginning and ending within a document."""

    median: float
    sigma: float
    """The standard deviation of the logarithm of the length."""

    @property
    def mean(self) -> float:
        return self.median * math.exp(self.sigma**2 / 2)

    def together(self, apart: float) -> float:
        """Return the probability that two tokens at this distance belong to one document: E max(X -
        apart, 0) / E X. It is also the probability that the first document of a row has that many
        tokens."""
        far = self._deviations(apart)
        return _NORMAL.cdf(far + self.sigma) - apart / self.mean * _NORMAL.cdf(far)

    def documents(self, length: int, tokens: int) -> float:
        """Return the expected number of documents per row with at least this many tokens: perhaps
        its first, and those that begin early enough within it."""
        longer = _NORMAL.cdf(self._deviations(tokens))
        return self.together(tokens) + (length - tokens) / self.mean * longer

    def visible(self, length: int) -> float:
        """Return the share of a row's triangle that is not masked, in blocks."""
        count = blocks(length)
        # For a block of queries and an earlier block of keys, the two nearest tokens decide.
        seen = sum((count - n) * self.together(max(1, (n - 1) * BLOCK + 1)) for n in range(count))
        return seen / (count * (count + 1) / 2)

    def _deviations(self, tokens: float) -> float:
        """Return by how many standard deviations a document of this length is shorter than the
        median."""
        return math.log(self.median / max(1, tokens)) / self.sigma
