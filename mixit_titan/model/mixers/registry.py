"""The mixers that a layer of a stack can have. To add one, write its file and add an entry here.

All of it is arithmetic, so that `params` counts a model without torch; the file of the same name
has the mixer's module. FLOPs and elements are per token and layer: n is the width and m the length.
"""

from collections.abc import Callable
from dataclasses import dataclass

from mixit_titan.model.shapes import Shape

Flops = Callable[[Shape, int], tuple[int, int]]
"""Maps a shape and a length to forward and backward FLOPs per token and layer."""


Keeps = Callable[[Shape, int, bool], int]
"""Maps a shape, a length and whether rows hold several documents to elements per token and
layer."""


@dataclass(frozen=True)
class Mixer:
    """What the rest of the code must know about a mixer to build and to count it."""

    flops: Flops
    parts: tuple[str, ...] = ("v", "o")
    """Its own parts of a layer, out of LAYER_PARTS."""
    attends: bool = False
    """Whether it mixes by queries and keys, with rotary embeddings; any other mixer needs learned
    positions."""
    drawn: bool = False
    """Whether it mixes by a matrix that [model.mixing] describes."""
    keeps: Keeps = lambda shape, length, documents: 0
    """Elements of its matrix that are kept for the backward pass: torch's products copy one for
    each row and head, while a fast path keeps none."""
    copied: bool = False
    """Whether a matrix of all heads, and its gradient, is copied on the way to that product."""
    buffered: bool = False
    """Whether each layer has a float32 matrix for each head that is not a weight."""


def _times(forward: int, backward: int) -> Flops:
    return lambda shape, length: (
        forward * length * shape.width,
        backward * length * shape.width,
    )


def _window(shape: Shape, length: int) -> tuple[int, int]:
    """Count two products with as many keys as a token sees on average."""
    seen = min(shape.window, length)
    pairs = seen * length - seen * (seen - 1) // 2
    forward = 4 * pairs * shape.width // length
    return forward, 2 * forward


def _matrix(shape: Shape, length: int, documents: bool) -> int:
    return shape.heads * length


def _matrix_of_documents(shape: Shape, length: int, documents: bool) -> int:
    """Return no elements, or one matrix, for rows that hold a single document."""
    return shape.heads * length if documents else 0


def _mask(shape: Shape, length: int, documents: bool) -> int:
    return length if documents else 0


MIXERS = {
    "attention": Mixer(_times(2, 4), ("qk", "v", "o"), attends=True),
    "mixing": Mixer(_times(1, 1), drawn=True),
    "learned": Mixer(_times(1, 2), ("v", "o", "matrix"), drawn=True, keeps=_matrix, copied=True),
    "uniform": Mixer(_times(1, 1), keeps=_matrix_of_documents),
    "linear": Mixer(_times(1, 1), keeps=_matrix_of_documents),
    "embedding": Mixer(_times(1, 1), keeps=_matrix, copied=True, buffered=True),
    "window": Mixer(_window, ("qk", "v", "o"), attends=True, keeps=_mask),
}
