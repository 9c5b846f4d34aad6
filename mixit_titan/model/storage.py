"""Chooses the form in which a model keeps its mixing matrices."""

from typing import Literal

from mixit_titan.kernels.forms import BLOCK, Form, packed_bytes
from mixit_titan.model.shapes import Shape

Storage = Literal["auto", Form]

DTYPE_BYTES = {"float32": 4, "bfloat16": 2}
STORED_SHARE = 0.5
"""The fraction of the memory that a run leaves free on a rank that its matrices may take. The rest
is for what an estimate cannot know: fragmentation, and buffers of libraries."""
_ROOM = 4 * 2**30


def choose_form(
    storage: Storage,
    shape: Shape,
    dtype: str,
    *,
    layers: int | None = None,
    tensor_parallel: int = 1,
    stages: int = 1,
    room: int | None = None,
) -> Form:
    """Choose the form. `auto` means stored where the matrices fit, and generated otherwise.
    `layers`: those that have matrices; None: all. `room`: bytes that all matrices of a rank may
    take, as `room_for_matrices` computes them; None: 4 GiB, if nobody knows."""
    if storage != "auto":
        return storage
    layers = shape.layers if layers is None else layers
    matrices = -(-layers // stages) * shape.heads // tensor_parallel
    size = DTYPE_BYTES[dtype]
    if room is None:  # on a CPU, which keeps the square and a strip of columns more
        taken = matrices * shape.seq_len * (shape.seq_len + BLOCK) * size
    else:
        taken = matrices * packed_bytes(shape.seq_len, size)
    return "generated" if taken > (_ROOM if room is None else room) else "stored"


def room_for_matrices(free: int) -> int:
    """Return the bytes for matrices, given the bytes of a rank's memory that weights, gradients,
    moments and activations leave `free`."""
    return max(0, int(STORED_SHARE * free))
