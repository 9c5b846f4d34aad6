"""Philox-4x32-10 and Box-Muller in NumPy, and how a model's random numbers are taken from them.

A second implementation to compare ours to: it imports nothing of mixit_titan.

- Philox: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). A
  counter of four 32-bit words and a key of two (here: a seed of 64 bits) give four words.
- From words to numbers, as Triton's `tl.rand` and `tl.randn4x`: a word, read as a signed integer
  and folded to be positive, times 2^-31 is uniform; two uniforms are two normals by Box-Muller.

A uniform is float32 by definition. Everything after it is float64 here and float32 in ours.
"""

import hashlib

import numpy as np
from numpy.typing import ArrayLike

MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
KEY_STEPS = 0x9E3779B9, 0xBB67AE85
LOW, HIGH = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox(seed: int, *counter: ArrayLike) -> list[np.ndarray]:
    """The four words of each counter (c0, c1, c2, c3); the counters broadcast."""
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(c, dtype=np.uint64) for c in counter))
    for turn in range(10):
        k0, k1 = (
            np.uint64(((seed >> shift) + turn * step) & 0xFFFFFFFF)
            for shift, step in zip((0, 32), KEY_STEPS, strict=True)
        )
        a, b = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]  # 64-bit products of 32-bit words
        c0, c1, c2, c3 = (b >> HIGH) ^ c1 ^ k0, b & LOW, (a >> HIGH) ^ c3 ^ k1, a & LOW
    return [c0, c1, c2, c3]


def uniform(word: np.ndarray) -> np.ndarray:
    signed = word.astype(np.uint32).view(np.int32)
    folded = np.where(signed < 0, -(signed + 1), signed)
    return folded.astype(np.float32) * np.float32(4.6566127342e-10)


def box_muller(words: list[np.ndarray]) -> list[np.ndarray]:
    """Four standard normals out of four words."""
    u1, u2, u3, u4 = (uniform(word).astype(np.float64) for word in words)
    normals = []
    for u, turn in ((u1, u2), (u3, u4)):
        radius = np.sqrt(-2 * np.log(np.maximum(u, 1e-7)))
        normals += [radius * np.cos(2 * np.pi * turn), radius * np.sin(2 * np.pi * turn)]
    return normals


def initial_normals(seed: int, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """A parameter before it is scaled: element e is normal e % 4 of the counter (e // 4 in two
    words, the first eight bytes of the name's SHA-256 in two words)."""
    element = np.arange(np.prod(shape))
    hashed = np.frombuffer(hashlib.sha256(name.encode()).digest()[:8], dtype="<u4")
    normals = box_muller(philox(seed, element // 4 % 2**32, element // 4 // 2**32, *hashed))
    return np.choose(element % 4, normals).reshape(shape)


def mixing_noise(seed: int, layer: int, head: int, length: int) -> np.ndarray:
    """W of one head, (length, length), by the counter (call, row, head, layer). Call 0 of a row
    serves the columns 0, 32, 64 and 96 with its four normals, call 1 the columns 1, 33, 65 and 97;
    call 32 begins the next 128 columns."""
    row, column = np.indices((length, length))
    call = column // 128 * 32 + column % 32
    calls, rows = np.arange(call.max() + 1), np.arange(length)[:, None]
    normals = np.stack(box_muller(philox(seed, calls, rows, head, layer)))
    return normals[column // 32 % 4, row, call]


def mixing_signs(seed: int, layer: int, head: int, length: int) -> np.ndarray:
    """W of signs: one call for 128 columns of a row, of which its first word has the first 32, from
    the lowest bit on. A bit that is set is a minus."""
    signs = np.empty((length, length))
    for column in range(length):
        word = philox(seed, column // 128, np.arange(length), head, layer)[column % 128 // 32]
        signs[:, column] = np.where(word & np.uint64(1 << column % 32), -1, 1)
    return signs


def head_uniform(seed: int, layer: int, head: int) -> float:
    """u of the standard deviation that is drawn once per head: the highest bit of the layer's word
    keeps its counter apart from those of W."""
    return float(uniform(philox(seed, 0, 0, head, layer + 2**31)[0]))
