"""Bytes that a rank receives from the others in a training step, counted from the model."""

from dataclasses import dataclass

from mixit_titan.model.accounting import count, weights
from mixit_titan.model.memory import Step
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import Stack
from mixit_titan.model.storage import DTYPE_BYTES

_GRADIENT_BYTES = 4
"""Gradients are reduced in float32."""
_TENSOR_COLLECTIVES = 8
"""Of a layer: before and after attention and MLP, in the forward and in the backward pass."""


@dataclass(frozen=True, kw_only=True)
class Received:
    weights: int
    """Gathered by FSDP2."""
    gradients: int
    """Scattered by FSDP2."""
    replicas: int = 0
    """Gradients of the other replicas (HSDP)."""
    tensor: int = 0
    """Activations of the ranks that compute a layer together. Those of the head are not counted."""

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.replicas + self.tensor


def fsdp_bytes(
    shape: Shape, stack: Stack, *, dtype: str, frozen: str, shards: int, chunks: int = 1
) -> Received:
    """Of one forward and one backward pass, with the head and the loss in `chunks`.

    Of each weight a rank lacks (N-1)/N: once for the forward pass, and once more for the backward
    pass unless the weight was kept. And of the gradient of its own shard it receives the others'
    parts, (N-1)/N of the gradients of what is trained. Frozen weights that are resident do not move
    at all. A mixing matrix is no weight: each rank has its own.
    """
    gathered = gradients = 0
    for weight in weights(shape, stack):
        with_head = weight.name.startswith(_head_group(shape))
        if weight.trained or frozen == "sharded":
            size = weight.elements * DTYPE_BYTES[dtype]
            gathered += size * _gathers(with_head, chunked=chunks > 1)
        if weight.trained:
            # In chunks the head scatters the gradient of a tied weight by itself, before that of
            # the embedding.
            tied = chunks > 1 and shape.tied and weight.name == "tok_embeddings.weight"
            gradients += weight.elements * _GRADIENT_BYTES * (2 if tied else 1)
    gathered, gradients = (size * (shards - 1) // shards for size in (gathered, gradients))
    return Received(weights=gathered, gradients=gradients)


def _head_group(shape: Shape) -> tuple[str, ...]:
    """What torchtitan's wrapping gathers with the head, by the beginnings of names."""
    return ("norm.", "lm_head.", *(["tok_embeddings."] if shape.tied else []))


def _gathers(with_head: bool, *, chunked: bool) -> int:
    """How often a parameter is gathered in a pass and its backward pass. What comes last in the
    forward pass comes first in the backward pass, and is kept; but a chunked loss gathers it for
    the norm, for itself and for the norm's gradient."""
    if not with_head:
        return 2
    return 3 if chunked else 1


def step_bytes(shape: Shape, stack: Stack, step: Step) -> Received:
    """Of a complete step. torchtitan gathers and scatters for each microbatch. What context and
    pipeline parallelism move is not counted, nor are matrices of the sharded form."""
    data = fsdp_bytes(
        shape,
        stack,
        dtype=step.dtype,
        frozen=step.frozen,
        shards=step.shards,
        chunks=step.chunks,
    )
    own = _GRADIENT_BYTES * count(shape, stack).trainable // (step.shards * step.tensor)
    layer = step.tokens * shape.width * DTYPE_BYTES[step.dtype] * (step.tensor - 1)
    collectives = _TENSOR_COLLECTIVES + (4 if step.recomputation == "full" else 0)
    times = step.microbatches
    return Received(
        weights=times * data.weights // step.tensor,
        gradients=times * data.gradients // step.tensor,
        replicas=times * 2 * own * (step.replicas - 1) // step.replicas,
        tensor=times * shape.layers * collectives * layer,
    )
