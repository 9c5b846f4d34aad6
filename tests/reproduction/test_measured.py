"""The interval of a figure, compared with known results for small samples."""

import math

import numpy as np
import pytest

from mixit_titan.reproduction.measured import Measured, widening
from mixit_titan.reproduction.units import COVARIANCE, NATS, PERCENT


def measured(*values: float) -> Measured:
    return Measured({str(seed): value for seed, value in enumerate(values)})


@pytest.mark.parametrize("seeds", [3, 5, 8])
def test_the_interval_covers_the_truth_as_often_as_it_says(seeds: int) -> None:
    """Seeds drawn from a normal distribution of mean 7: in 95 of 100 experiments the interval has
    7 in it. The plain percentile interval has it in 76 of 100 for three seeds, 84 for five."""
    rng = np.random.default_rng(0)
    hits = 0
    for number in range(1000):
        low, high = measured(*rng.normal(7, 2, seeds)).interval(NATS, str(number))
        hits += low <= 7 <= high
    assert 0.92 < hits / 1000 < 0.98


def test_it_is_about_student_s() -> None:
    """mean ± t s / sqrt(n), with t from a printed table."""
    values = (0.1, 0.4, 0.5, 0.8, 0.9)
    low, high = measured(*values).interval(NATS, "")
    half = 2.776 * np.std(values, ddof=1) / math.sqrt(5)
    assert high - low == pytest.approx(2 * half, rel=0.1)


def test_the_factor_of_the_docs() -> None:
    assert widening(3) == pytest.approx(2.69, abs=0.005)
    assert widening(5) == pytest.approx(1.58, abs=0.005)
    assert widening(8) == pytest.approx(1.29, abs=0.005)
    assert widening(1000) == pytest.approx(1, abs=0.01)


def test_one_seed_has_no_interval() -> None:
    assert measured(0.5).interval(PERCENT, "") is None


def test_what_is_counted_is_exact() -> None:
    assert Measured({"counted": 790400}, exact=True).interval(NATS, "") == (790400, 790400)


def test_it_is_the_same_every_time_and_another_for_another_figure() -> None:
    values = measured(0.1, 0.2, 0.7, 0.3, 0.6)
    first = values.resampled(PERCENT, "a")
    assert (first == values.resampled(PERCENT, "a")).all()
    assert (first != values.resampled(PERCENT, "b")).any()


def test_it_stays_where_values_can_be() -> None:
    assert measured(0.9, 1.0, 1.0).interval(PERCENT, "")[1] == 1.0
    low, _ = measured(0.001, 0.01, 0.1).interval(COVARIANCE, "")
    assert low > 0
