"""Assigns each parameter to a part of the model, and freezes parts."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal

from torch import nn
from torch.distributed.fsdp import FSDPModule
from torchtitan.components.checkpointer.utils import canonical_fqn

from mixit_titan.errors import ConfigError
from mixit_titan.log import logger
from mixit_titan.model.stack import Stack, Weights

FrozenStorage = Literal["sharded", "resident"]
"""How FSDP2 keeps frozen weights: sharded, or complete on each rank."""

# Tried in this order; every parameter of the model matches exactly one of them.
_PATTERNS = {
    "embedding": re.compile(r"^tok_embeddings\."),
    "head": re.compile(r"^lm_head\."),
    "norm": re.compile(r"(^norm|\.attention_norm|\.ffn_norm)\."),
    "qk": re.compile(r"\.attention\.qkv_linear\.w[qk]\."),
    "v": re.compile(r"\.attention\.(qkv_linear\.)?wv\."),
    "o": re.compile(r"\.attention\.wo\."),
    "matrix": re.compile(r"\.attention\.inner_attention\.weight$"),
    "mlp": re.compile(r"\.feed_forward\."),
}

_LAYER = re.compile(r"^layers\.(\d+)\.")


def named_weights(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters by their canonical names, without mixing matrices. (Where FSDP2 shards
    these, it treats them as parameters; nothing else does.)"""
    for name, param in model.named_parameters():
        name = canonical_fqn(name)
        if not name.endswith(".inner_attention.matrix"):
            yield name, param


def part_of(name: str) -> str:
    """Return the part that a parameter belongs to, given its canonical name."""
    for part, pattern in _PATTERNS.items():
        if pattern.search(name):
            return part
    raise ValueError(f"parameter {name} belongs to no part of model.freeze")


def pattern_of(chosen: Iterable[Weights]) -> str:
    """Return a regular expression that matches the names of these weights and no others."""
    layers: dict[str, list[str]] = defaultdict(list)
    found = []
    for part, layer in sorted(chosen, key=str):
        if layer is None:
            found.append(r"^norm\." if part == "norm" else _PATTERNS[part].pattern)
        else:
            layers[part].append(str(layer))
    for part, numbers in layers.items():
        found.append(rf"^(?=layers\.({'|'.join(numbers)})\.).*{_PATTERNS[part].pattern}")
    return "|".join(found)


def is_frozen(name: str, stack: Stack) -> bool:
    """Return whether the stack freezes a parameter, given its canonical name."""
    layer = _LAYER.match(name)
    return stack.freezes(part_of(name), int(layer[1]) if layer else None)


def freeze(model: nn.Module, stack: Stack) -> None:
    """Turn off the gradients of the frozen parts of a model, or of one of its pipeline stages.

    Call it after torchtitan has parallelized the model: version 0.3.0 makes new parameters there
    (protocols/module.py, `_spmd_distribute_state`) and drops `requires_grad`.
    """
    counts = {True: 0, False: 0}
    matched = set()
    for name, param in named_weights(model):
        part = part_of(name)
        matched.add(part)
        param.requires_grad_(not is_frozen(name, stack))
        counts[param.requires_grad] += param.numel()
    _check_matched(model, stack, matched)
    total = sum(counts.values())
    logger.info(
        f"Variant {stack.name}: {counts[True]:,} parameters trained, {counts[False]:,} frozen "
        f"({', '.join(stack.frozen) or 'nothing'}), {100 * counts[True] / total:.1f}% trained"
    )


def refreeze(model: nn.Module, stack: Stack) -> None:
    """Freeze again between two steps, for a stack that freezes other parts of the same layers."""
    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for module in sharded:  # validation may have left some of them gathered
        module.reshard()
    for name, param in named_weights(model):
        param.requires_grad_(not is_frozen(name, stack))
    for module in sharded:
        # FSDP2 reads requires_grad, which decides the dtype of gradient accumulation, when it is
        # first used, and again here.
        module.unshard()
        module.reshard()


def _check_matched(model: nn.Module, stack: Stack, matched: set[str]) -> None:
    """Raise an error for a part that matches nothing, unless its modules are on another pipeline
    stage."""
    expected = {part for layer in model.layers for part in stack.pair(int(layer)).frozen}
    if model.tok_embeddings is not None:
        expected |= {"embedding"} & {*stack.outer}
    tied = getattr(model, "enable_weight_tying", False)  # one weight, under the embedding's name
    if model.lm_head is not None and not tied:
        expected |= {"head"} & {*stack.outer}
    for part in stack.frozen:
        if part in expected - matched:
            raise ConfigError(f"model.freeze names {part!r}, which matches no parameter")
