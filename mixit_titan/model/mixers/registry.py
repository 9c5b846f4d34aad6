"""The mixers: what a layer of a stack may mix its tokens by. To add one: its file, and a line here.

All of it is arithmetic, so that `params` counts a model without torch; a mixer's own file, of the
same name, has its module. FLOPs and elements are per token and layer: n is the width and m the
length."""

from collections.abc import Callable
from dataclasses import dataclass

from mixit_titan.model.shapes import Shape

Flops = Callable[[Shape, int], tuple[int, int]]
"""From a shape and a length: forward and backward, per token and layer."""


Keeps = Callable[[Shape, int, bool], int]
"""From a shape, a length and whether rows hold several documents: elements."""


@dataclass(frozen=True)
class Mixer:
    flops: Flops
    parts: tuple[str, ...] = ("v", "o")
    """What it has of its own, out of LAYER_PARTS."""
    attends: bool = False
    """By queries and keys, with rotary embeddings; any other needs learned positions."""
    drawn: bool = False
    """By a matrix that [model.mixing] describes."""
    keeps: Keeps = lambda shape, length, documents: 0
    """Of its matrix, for the backward pass: torch's products copy one for each row and head. A fast
    path keeps none."""
    copied: bool = False
    """Whether a matrix of all heads is copied on the way to that product, and its gradient."""
    buffered: bool = False
    """Whether each layer has a matrix for each head, in float32, that is no weight."""


def _times(forward: int, backward: int) -> Flops:
    return lambda shape, length: (
        forward * length * shape.width,
        backward * length * shape.width,
    )


def _window(shape: Shape, length: int) -> tuple[int, int]:
    """Two products with as many keys as a token sees on average."""
    seen = min(shape.window, length)
    pairs = seen * length - seen * (seen - 1) // 2
    forward = 4 * pairs * shape.width // length
    return forward, 2 * forward


def _matrix(shape: Shape, length: int, documents: bool) -> int:
    return shape.heads * length


def _matrix_of_documents(shape: Shape, length: int, documents: bool) -> int:
    """One matrix, or none, serves rows of one document."""
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
