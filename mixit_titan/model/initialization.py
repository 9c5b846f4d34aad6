"""Initial weights as a pure function of (seed, parameter name, element).

torchtitan draws from the device's generator, shard by shard. On a CPU mesh that repeats the same
shard on every rank, and on any mesh the weights change with the number of ranks. A frozen random
weight is part of the model, so here each element has a counter of its own.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Replicate
from torchtitan.components.checkpointer.utils import canonical_fqn

from mixit_titan.kernels.named_normals import draw_normal
from mixit_titan.model.freezing import part_of
from mixit_titan.model.initial_std import Std, embedding_std, linear_std, std_by_part
from mixit_titan.model.recipes import Recipe
from mixit_titan.model.shapes import Shape


def name_parameters(model: nn.Module, seed: int) -> None:
    """Give each parameter the name that its initial values are drawn by."""
    for name, param in model.named_parameters():
        param.draw_key = (seed, canonical_fqn(name))


@dataclass(frozen=True)
class Normal:
    """Draws N(0, std^2), with the same values however the parameter is sharded."""

    std: float

    def __call__(self, param: nn.Parameter) -> None:
        seed, name = param.draw_key
        full = draw_normal(seed, name, param.shape, param.device).mul_(self.std).to(param.dtype)
        if isinstance(param, DTensor):
            mesh = param.device_mesh
            full = DTensor.from_local(full, mesh, [Replicate()] * mesh.ndim, run_check=False)
        with torch.no_grad():
            param.copy_(full)


@dataclass(frozen=True)
class LinearNormal:
    """Draws N(0, std^2) for the weight of a linear, with the std of the part it belongs to."""

    init_std: Std | dict[str, Std]
    scaled: bool
    """Whether the linear's output has a factor of its own (Recipe.linear_scale)."""

    def __call__(self, param: nn.Parameter) -> None:
        part = part_of(param.draw_key[1])
        std = std_by_part(self.init_std)["head" if part == "embedding" else part]  # if it is tied
        Normal(linear_std(std, param.shape[1], scaled=self.scaled))(param)


def embedding_normal(shape: Shape, recipe: Recipe) -> Normal:
    """Return the initializer of token and position embeddings; a tied one is drawn as the head
    is."""
    scaled, head = recipe.linear_scale, None
    if shape.tied:
        head = linear_std(std_by_part(shape.init_std)["head"], shape.width, scaled=scaled)
    return Normal(embedding_std(shape.embedding_std, head=head, scaled=scaled))
