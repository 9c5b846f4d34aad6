"""torchtitan's own parallelisation of a Llama, then what this project adds."""

from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule
from torchtitan.models.llama3.parallelize import parallelize_llama
from torchtitan.tools import utils

from mixit_titan.model.freezing import freeze
from mixit_titan.model.llama import MixitLlama


def parallelize(model: MixitLlama, **settings: Any) -> nn.Module:
    """Tensor parallelism, activation checkpointing, compile and FSDP2; then freezing."""
    model = parallelize_llama(model, **settings)
    freeze(model, model.config.variant)
    if utils.device_type == "cpu":
        # Gloo has no PREMUL_SUM, which FSDP2 uses to scale gradients (torch 2.13 and 2.15).
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)
    return model
