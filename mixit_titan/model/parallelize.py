"""torchtitan's own parallelization of a Llama with this project's additions: freezing, frozen
weights in the dtype they are used in, and activation checkpointing that saves the mixing
product."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torchtitan.config import TORCH_DTYPE_MAP
from torchtitan.config.configs import TrainingConfig
from torchtitan.distributed import fsdp
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.models.llama3.parallelize import parallelize_llama

import mixit_titan.kernels.causal_mix  # noqa: F401  (registers the products)
from mixit_titan.device import has_gpu
from mixit_titan.model.freezing import freeze, is_frozen, named_weights
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.stack import Stack

Recomputation = Literal["none", "selective", "full"]


def parallelize(model: MixitLlama, *, training: TrainingConfig, **settings: Any) -> nn.Module:
    """Apply tensor parallelism, activation checkpointing, compile and FSDP2, and then freeze."""
    stack = model.config.stack
    keep_in(model, stack, TORCH_DTYPE_MAP[training.mixed_precision_param])
    whole = model.config.frozen_storage == "resident"
    with resident(model, stack) if whole else contextlib.nullcontext():
        model = parallelize_llama(model, training=training, **settings)
    freeze(model, stack)
    if not has_gpu():
        # Gloo has no PREMUL_SUM, which FSDP2 uses to scale gradients (torch 2.13 and 2.15).
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)
    return model


def frozen_parameters(model: nn.Module, stack: Stack) -> set[nn.Parameter]:
    """Return the parameters of a model that the stack freezes."""
    return {param for name, param in named_weights(model) if is_frozen(name, stack)}


def keep_in(model: nn.Module, stack: Stack, dtype: torch.dtype) -> None:
    """Keep frozen weights in `dtype`, without a float32 master copy, which only updates need. FSDP2
    casts every weight to `dtype` before use, so the model computes the same values."""
    for param in frozen_parameters(model, stack):
        param.data = param.data.to(dtype)


@contextlib.contextmanager
def resident(model: nn.Module, stack: Stack) -> Iterator[None]:
    """A context in which torchtitan's FSDP2 leaves frozen weights complete on each rank, instead of
    gathering them in every forward and backward pass. torchtitan has no setting for that, so its
    `fully_shard` is replaced meanwhile."""
    fully_shard = fsdp.fully_shard

    def leaving(module: nn.Module | list[nn.Module], **settings: object) -> nn.Module:
        # Looked up only now, since tensor parallelism has replaced the parameters in between.
        return fully_shard(module, ignored_params=frozen_parameters(model, stack), **settings)

    fsdp.fully_shard = leaving
    try:
        yield
    finally:
        fsdp.fully_shard = fully_shard


class SelectiveRecomputation(SelectiveAC):
    """torchtitan's selective activation checkpointing, which here also saves the mixing product
    instead of recomputing it."""

    @dataclass(kw_only=True, slots=True)
    class Config(SelectiveAC.Config):
        pass

    def get_save_ops(self) -> set:
        products = torch.ops.mixit_titan
        ours = {products.stored_mix.default, products.generated_mix.default}
        return super().get_save_ops() | ours


def recomputation(mode: Recomputation) -> SelectiveRecomputation.Config | FullAC.Config | None:
    """Return the config of a mode of activation checkpointing."""
    return {"none": None, "selective": SelectiveRecomputation.Config(), "full": FullAC.Config()}[
        mode
    ]
