"""Activation checkpointing; the selective one saves the mixing product instead of repeating it."""

from dataclasses import dataclass
from typing import Literal

import torch
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC

import mixit_titan.kernels.causal_mix  # noqa: F401  (registers the products)

Recomputation = Literal["none", "selective", "full"]


class SelectiveRecomputation(SelectiveAC):
    @dataclass(kw_only=True, slots=True)
    class Config(SelectiveAC.Config):
        pass

    def get_save_ops(self) -> set:
        products = torch.ops.mixit_titan
        ours = {products.stored_mix.default, products.generated_mix.default}
        return super().get_save_ops() | ours


def recomputation(mode: Recomputation) -> SelectiveRecomputation.Config | FullAC.Config | None:
    return {"none": None, "selective": SelectiveRecomputation.Config(), "full": FullAC.Config()}[
        mode
    ]
