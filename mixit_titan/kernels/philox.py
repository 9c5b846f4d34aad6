"""Philox-4x32-10, the counter-based generator behind Triton's `tl.randn`, in plain torch.

A draw depends on (seed, counter) alone: no state, no global generator, and the same integers on
every device. 32-bit words are kept in int64, for which torch has all operations.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from collections.abc import Sequence

import torch

WORD = 0xFFFFFFFF
Word = torch.Tensor | int

_ROUND_A, _ROUND_B = 0xD2511F53, 0xCD9E8D57
_KEY_A, _KEY_B = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10


def philox(seed: int, c0: Word, c1: Word, c2: Word, c3: Word) -> tuple[torch.Tensor, ...]:
    """Return four blocks of 32-bit words for the counter (c0, c1, c2, c3), as `tl.philox` draws
    them.

    The counters broadcast against each other; at least one of them is a tensor.
    """
    k0, k1 = seed & WORD, (seed >> 32) & WORD
    for _ in range(_ROUNDS):
        # int64 wraps modulo 2**64, so both halves of a 32 x 32 bit product can be read off it.
        a, b = c0 * _ROUND_A, c2 * _ROUND_B
        c0, c1, c2, c3 = (
            ((b >> 32) & WORD) ^ c1 ^ k0,
            b & WORD,
            ((a >> 32) & WORD) ^ c3 ^ k1,
            a & WORD,
        )
        k0, k1 = (k0 + _KEY_A) & WORD, (k1 + _KEY_B) & WORD
    return c0, c1, c2, c3


def uniform(word: torch.Tensor) -> torch.Tensor:
    """Map a 32-bit word to a float32 in [0, 1), as `tl.rand` does."""
    folded = torch.where(word >> 31 == 1, WORD - word, word)
    return folded.to(torch.float32) * 4.6566127342e-10


def normals(words: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Return four standard normals in float32 from four words, by the Box-Muller of
    `tl.randn4x`."""
    out = []
    for first, second in ((words[0], words[1]), (words[2], words[3])):
        radius = torch.sqrt(-2.0 * torch.log(uniform(first).clamp_min(1.0e-7)))
        angle = 6.283185307179586 * uniform(second)
        out += [radius * torch.cos(angle), radius * torch.sin(angle)]
    return tuple(out)
