"""Which form of the mixing matrices a model takes."""

import functools
from typing import Literal

from torchtitan.tools import utils
from torchtitan.tools.logging import logger

from mixit_titan.kernels.causal_mix import Form
from mixit_titan.model.shapes import Shape

Storage = Literal["auto", Form]

BYTES = {"float32": 4, "bfloat16": 2}
# All matrices of a model on one rank. Above it, memory is worth more than the time to draw.
_STORED_LIMIT = 4 * 2**30


def matrix_elements(shape: Shape, tensor_parallel: int = 1) -> int:
    """Of all layers, on one rank."""
    return shape.layers * shape.heads // tensor_parallel * shape.seq_len**2


def choose_form(
    storage: Storage,
    shape: Shape,
    dtype: str,
    *,
    documents: bool = False,
    tensor_parallel: int = 1,
) -> Form:
    """`auto`: stored where the matrices fit, else generated. On a GPU also generated for rows of
    several documents: the stored form asks the host where they are, once a layer."""
    if storage != "auto":
        return storage
    size = matrix_elements(shape, tensor_parallel) * BYTES[dtype]
    asks_host = documents and utils.device_type != "cpu"
    return "generated" if size > _STORED_LIMIT or asks_host else "stored"


@functools.cache
def log_form(form: Form) -> None:
    """Once a process, not once a layer."""
    slow = form == "generated" and utils.device_type == "cpu"
    logger.info(
        f"Mixing matrices are {form}"
        + (", which without a GPU saves memory and costs time" if slow else "")
    )
