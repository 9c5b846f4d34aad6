"""Which source the rows of a mixture come from, place by place.

Weights are whole numbers w_1 ... w_K after a common factor is taken out. Of any W = w_1 + ... + w_K
places from the first on, w_i belong to source i: this pattern repeats. Within it the n-th row of a
source may come at its earliest when the share of the source exceeds n - 1 rows, and must come by
the time that the share has reached n rows. Of those that may come, the one that must come first
does. That is earliest deadline first, which keeps all deadlines if any order does, and one does
(R. Tijdeman, The chairman assignment problem, 1980). So the rows of each source are within one row
of its exact share at every place. With the weights 2, 1, 1:

    place    0  1  2  3   4  5  6  7
    source   0  1  0  2   0  1  0  2
    its row  0  0  1  0   2  1  3  1
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mixit_titan.errors import ConfigError

LONGEST = 100_000
"""The most places of a pattern, which is computed when a run starts."""


@dataclass(frozen=True)
class Source:
    """A folder of token shards that is part of a mixture."""

    path: str
    name: str
    """The name in the log and in the metrics."""


@dataclass(frozen=True)
class Weights:
    """The weight of each source, from the place `first` on."""

    first: int
    of_sources: tuple[float, ...]


ALONE = (Weights(0, (1,)),)
"""The weights of a single source."""


class Mixture:
    """The sources by the weights of consecutive spells, the first of which begins at 0."""

    def __init__(self, spells: Sequence[Weights]) -> None:
        self.firsts = np.array([spell.first for spell in spells])
        self.parts = [whole_numbers(spell.of_sources) for spell in spells]
        before = np.zeros(len(self.parts[0]), dtype=np.int64)
        self.before = [before]
        for at, length in enumerate(np.diff(self.firsts).tolist()):
            before = before + _given(self.parts[at], length)
            self.before.append(before)

    def find(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The source of each place, and which of its rows it takes, counted over all passes."""
        spells = np.searchsorted(self.firsts, places, side="right") - 1
        sources, nth = np.empty_like(places), np.empty_like(places)
        for spell in np.unique(spells):
            here, parts = spells == spell, self.parts[spell]
            source, row = _pattern(parts)
            repeats, at = np.divmod(places[here] - self.firsts[spell], len(source))
            found = source[at]
            sources[here] = found
            nth[here] = self.before[spell][found] + repeats * np.array(parts)[found] + row[at]
        return sources, nth

    def given(self, places: int) -> list[int]:
        """The number of rows of each source in the first `places`."""
        spell = int(np.searchsorted(self.firsts, places, side="right")) - 1
        inside = _given(self.parts[spell], places - int(self.firsts[spell]))
        return (self.before[spell] + inside).tolist()


def whole_numbers(weights: Sequence[float]) -> tuple[int, ...]:
    """Weights as whole numbers without a common factor, exact for the decimal numbers as
    written."""
    exact = [Fraction(str(weight)) for weight in weights]
    scale = math.lcm(*(weight.denominator for weight in exact))
    whole = [int(weight * scale) for weight in exact]
    common = math.gcd(*whole)
    if common == 0:
        raise ConfigError("data.sources: no source has a weight above 0: set one")
    parts = tuple(number // common for number in whole)
    if sum(parts) > LONGEST:
        raise ConfigError(
            f"data.sources: the weights {', '.join(map(str, weights))} would be exact only after "
            f"more than {LONGEST:,} rows: write them with fewer digits"
        )
    return parts


def _given(parts: tuple[int, ...], places: int) -> np.ndarray:
    repeats, rest = divmod(places, sum(parts))
    inside = np.bincount(_pattern(parts)[0][:rest], minlength=len(parts))
    return repeats * np.array(parts, dtype=np.int64) + inside


@functools.cache
def _pattern(parts: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The source of each place, and the number of rows of that source before it."""
    total, counts = sum(parts), [0] * len(parts)
    sources, rows = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
    for place in range(total):
        deadline, source = min(
            (-(-(count + 1) * total // part), source)
            for source, (count, part) in enumerate(zip(counts, parts, strict=True))
            if count * total < (place + 1) * part
        )
        assert deadline > place
        sources[place], rows[place] = source, counts[source]
        counts[source] += 1
    return sources, rows
