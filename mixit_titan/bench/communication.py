"""Bytes that FSDP2 moves in a step, counted from the model.

Each rank receives from the others what it lacks of each weight, (N-1)/N of it: once for the forward
pass, and once more for the backward pass unless the weight was kept. And it receives the others'
parts of the gradient of its own shard, (N-1)/N of the gradients of what is trained. Frozen weights
that are resident do not move at all. A mixing matrix is no weight: each rank has
its own.
"""

from mixit_titan.bench.settings import Point
from mixit_titan.bench.steps import model_config
from mixit_titan.model.accounting import meta_model
from mixit_titan.model.freezing import named_weights, part_of
from mixit_titan.model.llama import MixitLlama

_SIZE = {"float32": 4, "bfloat16": 2}
_GRADIENT = 4
"""Gradients are reduced in float32."""


def bytes_per_step(variant: str, point: Point, ranks: int) -> dict[str, int]:
    """What one rank receives: `weights`, `gradients`, and their sum `total`."""
    config = model_config(variant, point)
    weights = gradients = 0
    for name, param in named_weights(meta_model(config)):
        part = part_of(name)
        trained = part not in config.variant.frozen
        if trained or point.frozen == "sharded":
            weights += param.numel() * _SIZE[point.dtype] * _gathers(name, config)
        if trained:
            gradients += param.numel() * _GRADIENT
    weights, gradients = (size * (ranks - 1) // ranks for size in (weights, gradients))
    return {"weights": weights, "gradients": gradients, "total": weights + gradients}


def _gathers(name: str, config: MixitLlama.Config) -> int:
    """How often torchtitan's wrapping gathers a parameter in a step. What comes last in the forward
    pass comes first in the backward pass, and is kept; a tied embedding is one group with it."""
    kept = name.startswith(("norm.", "lm_head."))
    if config.enable_weight_tying:
        kept = kept or name.startswith("tok_embeddings.")
    return 1 if kept else 2
