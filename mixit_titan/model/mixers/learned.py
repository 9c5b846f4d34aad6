"""MixiT's matrix, trained: what does its randomness cost?

    A = tril(M),    M a parameter of each layer and head, N x m x m

M starts as the matrix that the mixing mixer has in that layer, with the seed and the recipe of
[model.mixing]: for m = 3 and the paper's recipe about

    position   0      1      2
    0          1
    1          0.01   0.99
    2         -0.02   0.01   1.01

so that with `freeze = ["matrix"]` it is MixiT with another product. It is saved with the weights.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Replicate

from mixit_titan.kernels.mixing import MatrixSpec, mixing_matrix
from mixit_titan.model.mixers.positional import Place, Positional, local


class Learned(Positional):
    @dataclass(kw_only=True, slots=True)
    class Config(Positional.Config):
        pass

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.weight = nn.Parameter(torch.empty(config.n_heads, config.length, config.length))

    def rows(self, first: int, end: int, device: torch.device) -> torch.Tensor:
        return local(self.weight)[:, first:end, :end].tril(first)


@dataclass(frozen=True)
class Drawn:
    """The matrices of a layer, the same however the parameter is sharded."""

    spec: MatrixSpec
    layer: int

    def __call__(self, param: nn.Parameter) -> None:
        heads = range(param.shape[0])
        full = mixing_matrix(self.spec, self.layer, heads).to(param.device, param.dtype)
        if isinstance(param, DTensor):
            mesh = param.device_mesh
            full = DTensor.from_local(full, mesh, [Replicate()] * mesh.ndim, run_check=False)
        with torch.no_grad():
            param.copy_(full)


def inner(place: Place) -> Learned.Config:
    assert place.spec is not None
    sizes = {"n_heads": place.shape.heads, "length": place.shape.seq_len}
    return Learned.Config(**sizes, param_init={"weight": Drawn(place.spec, place.layer)})
