"""A result of ours: a value for each seed, their mean, and its interval.

The interval is a percentile bootstrap over the seeds, widened for small samples. The plain one is
far too narrow for three or five seeds: the spread of resampled means is too small by a factor of
sqrt((n - 1) / n), and it uses a normal quantile where Student's is needed. Each resampled mean is
therefore moved away from the mean by the factor

    sqrt(n / (n - 1)) * t(0.975, n - 1) / 1.96

(2.69 for three seeds, 1.58 for five), after which the interval has about its nominal coverage
(tests/reproduction/test_measured.py draws samples and counts). A single seed has no interval.
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
    """A result, as one value per seed."""

    values: Mapping[str, float]
    """Values by seed, or by round of the benchmark."""
    exact: bool = False
    """Whether it is counted instead of measured."""

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return sum(self.values.values()) / len(self.values)

    def resampled(self, unit: Unit, name: str) -> np.ndarray | None:
        """Means of resampled seeds, (RESAMPLES,), always the same ones for a `name`; None for a
        single seed. Values with a logarithmic unit are widened as ratios."""
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
        """The 95% interval of the mean; None for a single seed."""
        means = self.resampled(unit, name)
        return None if means is None else interval_of(means)


def widening(count: int) -> float:
    """The factor by which resampled means of `count` values are moved away from the mean."""
    return math.sqrt(count / (count - 1)) * student(count - 1) / NORMAL


def interval_of(resampled: np.ndarray) -> tuple[float, float]:
    """The central 95% of resampled values."""
    low, high = np.quantile(resampled, _SHARES)
    return float(low), float(high)
