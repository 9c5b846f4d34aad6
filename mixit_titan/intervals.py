"""Confidence intervals of means over a few seeds."""

import math
import statistics
from collections.abc import Sequence

import numpy as np

NORMAL = 1.96
_STUDENT = {  # degrees of freedom -> quantile at 0.975; between them, linear in 1/degrees
    **{1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 8: 2.306, 10: 2.228},
    **{15: 2.131, 30: 2.042, math.inf: NORMAL},
}


def student(degrees: int) -> float:
    """The 0.975 quantile of Student's t distribution."""
    inverse = [1 / each for each in reversed(_STUDENT)]
    return float(np.interp(1 / degrees, inverse, [*reversed(_STUDENT.values())]))


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95% confidence interval of a mean by Student's t; None for a single value."""
    if len(values) < 2:
        return None
    mean = statistics.fmean(values)
    half = student(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return mean - half, mean + half
