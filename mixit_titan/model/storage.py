"""Which form of the mixing matrices a model takes."""

from typing import Literal

from mixit_titan.kernels.forms import Form
from mixit_titan.model.shapes import Shape

Storage = Literal["auto", Form]

DTYPE_BYTES = {"float32": 4, "bfloat16": 2}
# All matrices of a model on one rank. Above it, memory is worth more than the time to draw.
_STORED_LIMIT = 4 * 2**30


def choose_form(
    storage: Storage,
    shape: Shape,
    dtype: str,
    *,
    tensor_parallel: int = 1,
) -> Form:
    """`auto`: stored where the matrices fit, else generated."""
    if storage != "auto":
        return storage
    elements = shape.layers * shape.heads // tensor_parallel * shape.seq_len**2
    too_large = elements * DTYPE_BYTES[dtype] > _STORED_LIMIT
    return "generated" if too_large else "stored"
