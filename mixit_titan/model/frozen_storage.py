"""How FSDP2 keeps frozen weights: in the dtype that they are used in, and whole if asked."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torchtitan.distributed import fsdp

from mixit_titan.model.freezing import named_weights, part_of
from mixit_titan.model.variants import Variant

FrozenStorage = Literal["sharded", "resident"]


@dataclass(kw_only=True)
class FsdpSection:
    """[fsdp] of a run."""

    frozen: FrozenStorage = "sharded"
    """`resident`: each rank keeps the frozen weights whole and never gathers them. It costs memory
    and saves communication."""


def frozen_parameters(model: nn.Module, variant: Variant) -> set[nn.Parameter]:
    return {param for name, param in named_weights(model) if part_of(name) in variant.frozen}


def keep_in(model: nn.Module, variant: Variant, dtype: torch.dtype) -> None:
    """Frozen weights need no float32 master copy: nothing small is ever added to them. FSDP2 casts
    every weight to `dtype` before it is used, so the model computes the same."""
    for param in frozen_parameters(model, variant):
        param.data = param.data.to(dtype)


@contextlib.contextmanager
def resident(model: nn.Module, variant: Variant) -> Iterator[None]:
    """Within, torchtitan's FSDP2 leaves the frozen weights whole on each rank, instead of gathering
    them in every forward and backward pass. It has no setting for that: its `fully_shard` is
    replaced meanwhile."""
    fully_shard = fsdp.fully_shard

    def leaving(module: nn.Module | list[nn.Module], **settings: object) -> nn.Module:
        # Looked up now: tensor parallelism has replaced the parameters in between.
        return fully_shard(module, ignored_params=frozen_parameters(model, variant), **settings)

    fsdp.fully_shard = leaving
    try:
        yield
    finally:
        fsdp.fully_shard = fully_shard
