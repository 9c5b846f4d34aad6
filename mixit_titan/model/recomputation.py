"""Selective activation checkpointing that knows the mixing product: it is saved, not repeated."""

from dataclasses import dataclass

import torch
from torchtitan.distributed.activation_checkpoint import SelectiveAC

import mixit_titan.kernels.causal_mix  # noqa: F401  (registers the products)


class SelectiveRecomputation(SelectiveAC):
    @dataclass(kw_only=True, slots=True)
    class Config(SelectiveAC.Config):
        pass

    def get_save_ops(self) -> set:
        products = torch.ops.mixit_titan
        ours = {products.stored_mix.default, products.generated_mix.default}
        return super().get_save_ops() | ours
