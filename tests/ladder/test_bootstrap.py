import numpy as np
import pytest

from mixit_titan.ladder.bootstrap import TooFew, fit_with_draws
from mixit_titan.ladder.power_law import PowerLaw
from tests.ladder.test_power_law import PLACES

TRUE = PowerLaw(0.9, (30.0, 60.0), (0.38, 0.33))
LARGER = (2e6, 4e7)


def test_intervals_cover_at_their_rate() -> None:
    """Of 60 ladders with noise of half a percent, about 95% of the intervals hold the truth: those
    of the exponents, of the floor, of the loss of a larger model, and of a larger run."""
    rng = np.random.default_rng(0)
    exact, ladders, hits = TRUE.loss(*PLACES.T), 60, np.zeros(5)
    figures = (
        lambda law: law.floor,
        lambda law: law.exponents[0],
        lambda law: law.exponents[1],
        lambda law: law.loss(*LARGER),
    )
    for seed in range(ladders):
        noise = np.exp(0.005 * rng.standard_normal(len(exact) + 1))
        found = fit_with_draws(PLACES, exact * noise[:-1], draws=60, seed=seed)
        spans = [(found.interval(figure), figure(TRUE)) for figure in figures]
        spans.append((found.prediction(*LARGER), TRUE.loss(*LARGER) * noise[-1]))
        hits += [low <= truth <= high for (low, high), truth in spans]
    # 57 of 60 are expected; fewer than 51, or a mean below 0.9, has odds below 1%.
    assert hits.min() >= 51 and 0.90 <= hits.mean() / ladders <= 0.99, hits


def test_more_runs_narrow_an_interval() -> None:
    rng = np.random.default_rng(1)
    widths = []
    for repeats in (1, 8):
        places = np.repeat(PLACES, repeats, 0)
        noise = np.exp(0.005 * rng.standard_normal(len(places)))
        found = fit_with_draws(places, TRUE.loss(*places.T) * noise, draws=60)
        low, high = found.interval(lambda law: law.exponents[0])
        widths.append(high - low)
    assert widths[1] < 0.6 * widths[0]


@pytest.mark.parametrize(
    ("places", "needed"),
    [
        (PLACES[:6], "at least 7 runs, and there are 6"),
        (PLACES[:4, :1], "at least 5 runs, and there are 4"),
        (np.empty((0, 2)), "at least 7 runs, and there are 0"),
        (np.repeat(PLACES[:2], 5, 0), "needs 3 values of N, and there are 2"),
    ],
)
def test_too_few_runs_say_how_many_are_needed(places: np.ndarray, needed: str) -> None:
    with pytest.raises(TooFew, match=needed):
        fit_with_draws(places, np.ones(len(places)))


def test_an_exponent_that_nothing_determines_has_a_wide_interval() -> None:
    """A loss that does not depend on N: no draw may stay where the fit happened to end."""
    rng = np.random.default_rng(0)
    sizes_n2 = np.array([(n, d) for n in (1e4, 3e4, 1e5, 3e5) for d in (1e5, 4e5, 2e6, 8e6)])
    loss_n = (2.35 + 60 / sizes_n2[:, 1] ** 0.5) * np.exp(0.002 * rng.standard_normal(16))
    found = fit_with_draws(sizes_n2, loss_n)
    low, high = found.interval(lambda law: law.exponents[0])
    assert high - low > 1
