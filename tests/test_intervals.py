import numpy as np
import pytest

from mixit_titan.intervals import mean_interval, student


def test_quantiles_are_those_of_the_tables() -> None:
    # Student's t at 0.975, from any table of statistics.
    assert [student(n) for n in (1, 4, 10, 30)] == [12.706, 2.776, 2.228, 2.042]
    assert student(20) == pytest.approx(2.086, abs=0.002)
    assert student(10**9) == pytest.approx(1.96, abs=1e-3)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_an_interval_covers_the_mean_as_often_as_it_says(count: int) -> None:
    rng = np.random.default_rng(count)
    found = [mean_interval(sample) for sample in rng.normal(3, 2, (4000, count)).tolist()]
    covered = np.mean([low <= 3 <= high for low, high in found])
    assert covered == pytest.approx(0.95, abs=0.012)


def test_one_value_has_no_interval() -> None:
    assert mean_interval([1.0]) is None
