"""Which parameter belongs to which part, and the freezing of parts."""

import re
from collections.abc import Iterator
from typing import Literal

from torch import nn
from torchtitan.components.checkpointer.utils import canonical_fqn
from torchtitan.tools.logging import logger

from mixit_titan.errors import ConfigError
from mixit_titan.model.variants import Variant

FrozenStorage = Literal["sharded", "resident"]
"""How FSDP2 keeps frozen weights: in shards, or whole on each rank."""

# Tried in this order; every parameter of the model matches exactly one.
_PATTERNS = {
    "embedding": re.compile(r"^tok_embeddings\."),
    "head": re.compile(r"^lm_head\."),
    "norm": re.compile(r"(^norm|\.attention_norm|\.ffn_norm)\."),
    "qk": re.compile(r"\.attention\.qkv_linear\.w[qk]\."),
    "v": re.compile(r"\.attention\.(qkv_linear\.)?wv\."),
    "o": re.compile(r"\.attention\.wo\."),
    "mlp": re.compile(r"\.feed_forward\."),
}


def named_weights(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters by their canonical names, without mixing matrices: where FSDP2 shards them,
    they are parameters to it, and to nobody else."""
    for name, param in model.named_parameters():
        name = canonical_fqn(name)
        if not name.endswith(".inner_attention.matrix"):
            yield name, param


def part_of(name: str) -> str:
    """The part that a parameter belongs to, by its canonical name."""
    for part, pattern in _PATTERNS.items():
        if pattern.search(name):
            return part
    raise ValueError(f"parameter {name} belongs to no part of model.freeze")


def freeze(model: nn.Module, variant: Variant) -> None:
    """Turn the gradients of the frozen parts off, in a whole model or in a pipeline stage of one.

    Call it after torchtitan has parallelised the model: version 0.3.0 makes new parameters there
    (protocols/module.py, `_spmd_distribute_state`) and drops `requires_grad`.
    """
    counts = {True: 0, False: 0}
    matched = set()
    for name, param in named_weights(model):
        part = part_of(name)
        matched.add(part)
        param.requires_grad_(part not in variant.frozen)
        counts[param.requires_grad] += param.numel()
    _check_matched(model, variant, matched)
    total = sum(counts.values())
    logger.info(
        f"Variant {variant.name}: {counts[True]:,} parameters trained, {counts[False]:,} frozen "
        f"({', '.join(variant.frozen) or 'nothing'}), {100 * counts[True] / total:.1f}% trained"
    )


def _check_matched(model: nn.Module, variant: Variant, matched: set[str]) -> None:
    """A rule that matches nothing is an error, unless its modules are on another pipeline stage."""
    absent = set()
    if model.tok_embeddings is None:
        absent.add("embedding")
    if model.lm_head is None:
        absent.add("head")
    if getattr(model, "enable_weight_tying", False):
        absent.add("head")  # one weight, and it goes by the embedding's name
    if len(model.layers) == 0:
        absent.update({"qk", "v", "o", "mlp", "norm"})
    for part in variant.frozen:
        if part not in matched | absent:
            raise ConfigError(f"model.freeze names {part!r}, which matches no parameter")
