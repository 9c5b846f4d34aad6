"""A figure of ours: a value for each seed, their mean, and its interval.

The interval is a percentile bootstrap over the seeds, widened for small samples. The plain one is
far too narrow for three or five seeds: resampled means spread by sqrt((n - 1) / n) too little, and
a normal quantile stands where Student's belongs. So each resampled mean is moved away from the mean
by the factor

    sqrt(n / (n - 1)) * t(0.975, n - 1) / 1.96

(2.69 for three seeds, 1.58 for five), after which the interval covers about as often as it says
(tests/reproduction/test_measured.py draws samples and counts). One seed has no interval.
"""

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mixit_titan.intervals import NORMAL, student
from mixit_titan.reproduction.units import Unit

RESAMPLES = 2000
_SHARES = (0.025, 0.975)


@dataclass(frozen=True)
class Measured:
    values: Mapping[str, float]
    """By seed, or by what else is repeated."""
    exact: bool = False
    """Counted, and not measured."""

    @property
    def mean(self) -> float:
        return sum(self.values.values()) / len(self.values)

    def resampled(self, unit: Unit, name: str) -> np.ndarray | None:
        """(RESAMPLES,) means of resampled seeds, always the same for a `name`; None where there is
        nothing to resample. What is compared by ratios is moved by a factor."""
        if self.exact:
            return np.full(RESAMPLES, self.mean)
        if len(self.values) < 2:
            return None
        values = np.array(list(self.values.values()), dtype=float)
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(1)
        wide = widening(len(values))
        if unit.logarithmic and values.min() > 0:
            return self.mean * (means / self.mean) ** wide
        return np.clip(self.mean + wide * (means - self.mean), unit.least, unit.most)

    def interval(self, unit: Unit, name: str) -> tuple[float, float] | None:
        means = self.resampled(unit, name)
        return None if means is None else interval_of(means)


def widening(count: int) -> float:
    """How much further from the mean than plain resampled means, for so many values."""
    return math.sqrt(count / (count - 1)) * student(count - 1) / NORMAL


def interval_of(resampled: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(resampled, _SHARES)
    return float(low), float(high)
