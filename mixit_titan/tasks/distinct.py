"""Draws without replacement, for all examples at once."""

import numpy as np


def distinct(rng: np.random.Generator, among: int, size: int, count: int) -> np.ndarray:
    """Return (size, count): in each column `size` different numbers below `among`, every sequence
    of them equally likely. These are the first steps of a Fisher-Yates shuffle."""
    pool_KN = np.empty((among, count), dtype=np.int32)
    pool_KN[:] = np.arange(among)[:, None]
    chosen_PN = rng.random((size, count), dtype=np.float32)
    every = np.arange(count)
    for place in range(size):
        left = among - place
        other = place + np.minimum((chosen_PN[place] * left).astype(np.int64), left - 1)
        taken = pool_KN[other, every]
        pool_KN[other, every] = pool_KN[place]
        pool_KN[place] = taken
    return pool_KN[:size]
