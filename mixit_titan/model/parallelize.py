"""torchtitan's own parallelisation of a Llama, then what this project adds."""

import contextlib
from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule
from torchtitan.config import TORCH_DTYPE_MAP
from torchtitan.config.configs import TrainingConfig
from torchtitan.models.llama3.parallelize import parallelize_llama
from torchtitan.tools import utils

from mixit_titan.model.freezing import freeze
from mixit_titan.model.frozen_storage import keep_in, resident
from mixit_titan.model.llama import MixitLlama


def parallelize(model: MixitLlama, *, training: TrainingConfig, **settings: Any) -> nn.Module:
    """Tensor parallelism, activation checkpointing, compile and FSDP2; then freezing."""
    variant = model.config.variant
    keep_in(model, variant, TORCH_DTYPE_MAP[training.mixed_precision_param])
    whole = model.config.frozen_storage == "resident"
    with resident(model, variant) if whole else contextlib.nullcontext():
        model = parallelize_llama(model, training=training, **settings)
    freeze(model, variant)
    if utils.device_type == "cpu":
        # Gloo has no PREMUL_SUM, which FSDP2 uses to scale gradients (torch 2.13 and 2.15).
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)
    return model
