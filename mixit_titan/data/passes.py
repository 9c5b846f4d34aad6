"""The rows of one source, pass after pass, each pass in an order of its own (permutation.py).

A source may be made longer while a run is stopped. The pass that it was in then continues as it
was, with the added rows after the others; the passes that follow have all rows in one order. With 4
rows that become 6 in pass 1:

    pass        0        1            2
    rows of it  4 of 4   4 of 4, 2    6 of 6
"""

import bisect
from collections.abc import Sequence

import numpy as np

from mixit_titan.data.permutation import permuted

Lengths = Sequence[tuple[int, int]]
"""A pass, and how many rows there are from then on; the first is pass 0."""


class Passes:
    def __init__(self, lengths: Lengths, *, seed: int) -> None:
        self.lengths, self.seed = [(number, rows) for number, rows in lengths], seed
        # Parts of equal passes: first row, first pass, and which rows a pass of it has.
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
        """With more rows, from the pass on in which the last of `given` rows was."""
        return Passes([*self.lengths, (self.number(max(0, given - 1)), rows)], seed=self.seed)

    def find(self, nth: np.ndarray) -> np.ndarray:
        """Which row of the source each of its n-th ones over all passes is."""
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
        """The pass of a row; it is also how often the source has begun again by then."""
        first, begun, _, rows = self.parts[bisect.bisect_right(self._firsts, nth) - 1]
        return begun + (nth - first) // rows
