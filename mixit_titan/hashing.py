"""Hashes that determine splits and orders: changing one would move every split."""

import hashlib

import numpy as np


def mix_bits(x: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64 (Steele, Lea, Flood 2014) for uint64: every bit of the result
    depends on every bit of x, and no two x have the same result."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def text_hash(text: bytes) -> int:
    """The first 64 bits of a text's SHA-256, as an integer."""
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
