import time

import numpy as np
import pytest

from mixit_titan.data.permutation import _round_keys, permuted


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 16, 17, 255, 256, 257, 1000, 65537])
def test_every_index_comes_exactly_once(n: int) -> None:
    for seed, epoch in ((0, 0), (0, 1), (7, 3)):
        order = permuted(np.arange(n), n, seed=seed, epoch=epoch)
        assert np.array_equal(np.sort(order), np.arange(n))


def test_seed_and_epoch_change_the_order() -> None:
    orders = [permuted(np.arange(1000), 1000, seed=s, epoch=e) for s, e in ((0, 0), (0, 1), (1, 0))]
    for i, a in enumerate(orders):
        for b in orders[:i]:
            assert (a == b).sum() < 10  # two random orders agree in about one place


def test_epochs_share_no_round_key() -> None:
    keys = np.concatenate([_round_keys(0, epoch) for epoch in range(1000)])
    assert len(np.unique(keys)) == len(keys)


def test_the_order_looks_random() -> None:
    n, orders = 101, 2000
    places = np.stack([permuted(np.arange(n), n, seed=0, epoch=e) for e in range(orders)])
    # Each index is as often in the first half as in the second, and neighbors are separated.
    counts = (places < n // 2).sum(0) / orders
    assert np.abs(counts - (n // 2) / n).max() < 5 * np.sqrt(0.25 / orders)
    steps = np.diff(places, axis=1)
    assert abs(np.corrcoef(steps[:, 0], steps[:, 50])[0, 1]) < 5 / np.sqrt(orders)
    assert 0.4 < (steps > 0).mean() < 0.6


def test_a_slice_is_the_same_alone_and_needs_no_memory() -> None:
    n = 10**12
    indices = np.arange(n - 4096, n)
    start = time.perf_counter()
    order = permuted(indices, n, seed=3, epoch=2)
    assert time.perf_counter() - start < 1
    assert len(np.unique(order)) == 4096 and order.min() >= 0 and order.max() < n
    assert np.array_equal(permuted(indices[100:200], n, seed=3, epoch=2), order[100:200])
