"""MixiT's matrix, trained, to measure what its randomness costs.

    A = tril(M),    M a parameter of each layer, N x m x m for its N heads

M is initialized to the mixing mixer's matrix for that layer, with the seed and the recipe of
[model.mixing]. For m = 3 and the paper's recipe, approximately:

    position   0      1      2
    0          1
    1          0.01   0.99
    2         -0.02   0.01   1.01

With `freeze = ["matrix"]` it is MixiT by a different product. It is saved with the weights.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Replicate

from mixit_titan.kernels.mixing import MatrixSpec, mixing_matrix
from mixit_titan.model.mixers.positional import Place, Positional, local


class Learned(Positional):
    """Mixes the values of one layer by a trained matrix per head."""

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
    """Draws the matrices of a layer, with the same values however the parameter is sharded."""

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
    """Return the config of a layer's inner module, the interface of every mixer's file."""
    assert place.spec is not None
    sizes = {"n_heads": place.shape.heads, "length": place.shape.seq_len}
    return Learned.Config(**sizes, param_init={"weight": Drawn(place.spec, place.layer)})
