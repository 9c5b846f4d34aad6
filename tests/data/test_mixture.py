"""Shares of sources, against their exact ones."""

import numpy as np
import pytest

from mixit_titan.data.mixture import LONGEST, Mixture, Weights, whole_numbers
from mixit_titan.errors import ConfigError

WEIGHTS = [
    (1,),
    (1, 1),
    (0.7, 0.2, 0.1),
    (5, 3, 1),
    (0.333, 0.333, 0.334),
    (0.9, *[0.02] * 5),
    (1, 1, 2, 3, 5, 8, 13, 21),
    (97, 89, 83, 1, 1, 1, 1, 1, 1, 1),
    (1e-3, 1, 1),
    (0, 2, 1),
]


def shares(weights: tuple[float, ...]) -> np.ndarray:
    return np.array(weights, dtype=np.float64) / np.sum(weights)


def counts(sources: np.ndarray, kinds: int) -> np.ndarray:
    """Of each source, after each place."""
    return np.cumsum(sources[:, None] == np.arange(kinds), axis=0)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_rows_of_each_source_are_within_one_of_its_share(weights: tuple[float, ...]) -> None:
    places = np.arange(5000)
    sources, nth = Mixture([Weights(0, weights)]).find(places)
    found = counts(sources, len(weights))
    exact = (places[:, None] + 1) * shares(weights)
    assert np.abs(found - exact).max() < 1
    assert (nth == found[places, sources] - 1).all()


@pytest.mark.parametrize("weights", WEIGHTS)
def test_shares_are_exact_over_a_period(weights: tuple[float, ...]) -> None:
    parts = whole_numbers(weights)
    np.testing.assert_allclose(shares(parts), shares(weights), rtol=1e-12)
    sources, _ = Mixture([Weights(0, weights)]).find(np.arange(3 * sum(parts)))
    periods = sources.reshape(3, -1)
    assert (periods == periods[0]).all()
    assert np.bincount(periods[0], minlength=len(parts)).tolist() == list(parts)


def test_a_place_needs_no_places_before_it() -> None:
    mixture = Mixture(
        [Weights(0, (0.7, 0.2, 0.1)), Weights(130, (1, 0, 4)), Weights(990, (1, 1, 1))]
    )
    places = np.arange(3000)
    together = np.stack(mixture.find(places))
    shuffled = np.random.default_rng(0).permutation(places)
    assert (np.stack(mixture.find(shuffled)) == together[:, shuffled]).all()
    assert (np.diff([mixture.given(n) for n in range(3001)], axis=0).sum(axis=1) == 1).all()
    assert mixture.given(3000) == np.bincount(together[0]).tolist()


def test_far_away_the_shares_are_still_within_one_row() -> None:
    far = 10**15
    mixture = Mixture([Weights(0, (5, 3, 1))])
    sources, nth = mixture.find(far + np.arange(9))
    exact = [far * part // 9 for part in (5, 3, 1)]
    for source in range(3):
        first = nth[sources == source][0]
        assert abs(int(first) - exact[source]) <= 1


def test_weights_change_from_a_place_on() -> None:
    spells = [Weights(0, (3, 1, 0)), Weights(100, (1, 1, 2)), Weights(260, (0, 0, 1))]
    sources, nth = Mixture(spells).find(np.arange(400))
    for spell, end in zip(spells, (100, 260, 400), strict=True):
        inside = counts(sources[spell.first : end], 3)
        exact = np.arange(1, end - spell.first + 1)[:, None] * shares(spell.of_sources)
        assert np.abs(inside - exact).max() < 1
    for source in range(3):  # each resumes where it was
        assert nth[sources == source].tolist() == list(range((sources == source).sum()))


def test_weights_that_are_no_mixture_are_refused() -> None:
    with pytest.raises(ConfigError, match="no source has a weight above 0"):
        whole_numbers((0, 0.0))
    with pytest.raises(ConfigError, match=f"exact only after more than {LONGEST:,} rows"):
        whole_numbers((0.123456789, 1))
