"""The forms in which a mixing matrix exists.

- stored: in memory, in the dtype of the values (stored.py); packed on a GPU if causal.
- sharded: stored in rows that FSDP2 shards and gathers.
- generated: drawn while it is multiplied (generated.py).
"""

from typing import Literal

Form = Literal["stored", "sharded", "generated"]

BLOCK = 128  # positions: rows and columns of a tile of A


def blocks(length: int) -> int:
    """Return how many blocks of positions a sequence has."""
    return -(-length // BLOCK)


def packed_tiles(length: int) -> int:
    """Return the tiles of a causal matrix on a GPU: the lower triangle, with complete tiles on the
    diagonal."""
    return blocks(length) * (blocks(length) + 1) // 2


def packed_bytes(length: int, itemsize: int) -> int:
    """Return the bytes of one head's causal matrix as a GPU keeps it."""
    return packed_tiles(length) * BLOCK**2 * itemsize
