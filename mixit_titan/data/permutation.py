"""A pseudo-random permutation of n things that is computed, not stored: a Feistel network.

A Feistel network is a bijection of 2k-bit numbers whatever its round function is. An image of n or
more is sent through it again until it falls below n (cycle walking), which makes it a bijection of
0..n-1. There are fewer than 4n numbers of 2k bits, so that takes fewer than four turns on average.
"""

import numpy as np

from mixit_titan.hashing import mix_bits

_ROUNDS = 6


def permuted(indices: np.ndarray, n: int, *, seed: int, epoch: int) -> np.ndarray:
    """The images of `indices` (below n) under the permutation of this seed and epoch."""
    half = np.uint64(max(1, -(-(n - 1).bit_length() // 2)))
    keys = _round_keys(seed, epoch)
    out = np.array(indices, dtype=np.uint64)
    outside = np.ones(out.shape, dtype=bool)
    while outside.any():
        out[outside] = _feistel(out[outside], half, keys)
        outside = out >= np.uint64(n)
    return out.astype(np.int64)


def _feistel(x: np.ndarray, half: np.uint64, keys: np.ndarray) -> np.ndarray:
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = x >> half, x & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return left << half | right


def _round_keys(seed: int, epoch: int) -> np.ndarray:
    """Different keys for each epoch."""
    start = _mix(np.array([seed % 2**64], dtype=np.uint64))
    first = np.uint64(1 + _ROUNDS * epoch)
    return _mix(start + first + np.arange(_ROUNDS, dtype=np.uint64))


def _mix(x: np.ndarray) -> np.ndarray:
    """A step of splitmix64 from state x. Its increment keeps 0 from being mixed to 0."""
    return mix_bits(x + np.uint64(0x9E3779B97F4A7C15))
