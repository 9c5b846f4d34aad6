"""Bytes that a rank receives from other ranks in a training step, counted from the model."""

from dataclasses import dataclass

from mixit_titan.model.accounting import count, weights
from mixit_titan.model.memory import Step
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import Stack
from mixit_titan.model.storage import DTYPE_BYTES

_GRADIENT_BYTES = 4
"""Gradients are reduced in float32."""
_TENSOR_COLLECTIVES = 8
"""Per layer: before and after attention and MLP, in both the forward and the backward pass."""


@dataclass(frozen=True, kw_only=True)
class Received:
    """Bytes that one rank receives in one step, by what they are for."""

    weights: int
    """Weights gathered by FSDP2."""
    gradients: int
    """Gradients scattered by FSDP2."""
    replicas: int = 0
    """Gradients of the other replicas (HSDP)."""
    tensor: int = 0
    """Activations exchanged by the ranks of a tensor-parallel group, except those of the head."""

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.replicas + self.tensor


def fsdp_bytes(
    shape: Shape, stack: Stack, *, dtype: str, frozen: str, shards: int, chunks: int = 1
) -> Received:
    """Count the bytes of one forward and one backward pass, with the head and the loss in `chunks`.

    A rank lacks (N-1)/N of each weight. It receives that much for the forward pass, and again for
    the backward pass unless the weight was kept. For the gradient of its own shard it receives the
    other ranks' parts, (N-1)/N of the gradients of the trained weights. Resident frozen weights are
    never sent. A mixing matrix is not a weight: each rank has its own copy.
    """
    gathered = gradients = 0
    for weight in weights(shape, stack):
        with_head = weight.name.startswith(_head_group(shape))
        if weight.trained or frozen == "sharded":
            size = weight.elements * DTYPE_BYTES[dtype]
            gathered += size * _gathers(with_head, chunked=chunks > 1)
        if weight.trained:
            # With chunks the head scatters the gradient of a tied weight on its own, before that of
            # the embedding.
            tied = chunks > 1 and shape.tied and weight.name == "tok_embeddings.weight"
            gradients += weight.elements * _GRADIENT_BYTES * (2 if tied else 1)
    gathered, gradients = (size * (shards - 1) // shards for size in (gathered, gradients))
    return Received(weights=gathered, gradients=gradients)


def _head_group(shape: Shape) -> tuple[str, ...]:
    """Return the prefixes of the names that torchtitan's wrapping gathers together with the
    head."""
    return ("norm.", "lm_head.", *(["tok_embeddings."] if shape.tied else []))


def _gathers(with_head: bool, *, chunked: bool) -> int:
    """Return how often a parameter is gathered in a forward and backward pass. What comes last in
    the forward pass comes first in the backward pass, so it is kept; but a chunked loss gathers it
    for the norm, for itself, and for the norm's gradient."""
    if not with_head:
        return 2
    return 3 if chunked else 1


def step_bytes(shape: Shape, stack: Stack, step: Step) -> Received:
    """Count the bytes of a complete step: torchtitan gathers and scatters for each microbatch.
    Traffic of context and pipeline parallelism and of sharded mixing matrices is not counted."""
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
