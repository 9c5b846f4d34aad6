"""The rows of one source, pass after pass, each pass in its own order (permutation.py).

A source may be extended while a run is stopped. The pass in which that happened then continues
unchanged, with the added rows after the others; later passes have all rows in one order. With 4
rows that become 6 in pass 1:

    pass        0        1            2
    its rows    4 of 4   4 of 4, 2    6 of 6
"""

import bisect
from collections.abc import Sequence

import numpy as np

from mixit_titan.data.permutation import permuted

Lengths = Sequence[tuple[int, int]]
"""A pass, and the number of rows from that pass on; the first is pass 0."""


class Passes:
    """The rows of a source over all passes."""

    def __init__(self, lengths: Lengths, *, seed: int) -> None:
        self.lengths, self.seed = [(number, rows) for number, rows in lengths], seed
        # Parts with equal passes: first row, first pass, and which rows each of its passes has.
        parts, first, begun = [], 0, 0
        rows = self.lengths[0][1]
        for number, longer in self.lengths[1:]:
            parts.append((first, begun, 0, rows))
            first += (number + 1 - begun) * rows
            parts.append((first, number, rows, longer - rows))
            first += longer - rows
            begun, rows = number + 1, longer
        parts.append((first, begun, 0, rows))
        self.parts, self.rows = parts, rows
        self._firsts = [part[0] for part in parts]

    def lengthened(self, rows: int, given: int) -> "Passes":
        """The same with more rows, from the pass on that contained the last of `given` rows."""
        return Passes([*self.lengths, (self.number(max(0, given - 1)), rows)], seed=self.seed)

    def find(self, nth: np.ndarray) -> np.ndarray:
        """The row of the source for each of its n-th rows over all passes."""
        found = np.empty_like(nth)
        parts = np.searchsorted(self._firsts, nth, side="right") - 1
        for part in np.unique(parts).tolist():
            first, begun, skipped, rows = self.parts[part]
            passes, at = np.divmod(nth - first, rows)
            for number in np.unique(passes[parts == part]).tolist():
                now = (parts == part) & (passes == number)
                order = permuted(at[now], rows, seed=self.seed, epoch=begun + number)
                found[now] = skipped + order
        return found

    def number(self, nth: int) -> int:
        """The pass of a row, which is also how many times the source has started again by then."""
        first, begun, _, rows = self.parts[bisect.bisect_right(self._firsts, nth) - 1]
        return begun + (nth - first) // rows
