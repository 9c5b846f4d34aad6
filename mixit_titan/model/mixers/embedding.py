"""Fixed attention maps from random vectors, one query and one key per position.

    A_ij = exp(q_i k_j / sqrt(h)) / sum over j' <= i of exp(q_i k_j' / sqrt(h))    for j <= i

with q and k drawn from N(0, 1) and h the head width: a softmax that depends on no token. For scores
0, 0, log 2 in the last row:

    position   0    1    2        for values 6, 2, 1:
    2          1/4  1/4  1/2      2.5

The vectors are a function of `model.mixing.seed`, the layer and the head. They are not saved: a
checkpoint has the seed and a fingerprint of the integers behind them.
"""

from dataclasses import dataclass

import torch
from torchtitan.distributed import ParallelDims

from mixit_titan.kernels.maps import map_rows, map_vectors
from mixit_titan.model.mixers.positional import Place, Positional


class EmbeddedMaps(Positional):
    """Mixes the values of one layer by softmax maps of fixed random vectors."""

    @dataclass(kw_only=True, slots=True)
    class Config(Positional.Config):
        head_dim: int
        layer: int
        seed: int

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.config, self.heads = config, range(config.n_heads)
        self.register_buffer("matrix", torch.empty(0), persistent=False)

    def _distribute_states(self, parallel_dims: ParallelDims) -> None:
        """Under tensor parallelism a rank draws the maps of its own heads."""
        mesh = parallel_dims.get_optional_mesh("tp")
        if mesh is not None:
            share = len(self.heads) // mesh.size()
            self.heads = self.heads[share * mesh.get_local_rank() :][:share]

    def _init_self_buffers(self, *, buffer_device: torch.device | None = None) -> None:
        own, device = self.config, buffer_device or self.matrix.device
        size = (own.n_heads, own.length, own.head_dim)
        heads = slice(self.heads.start, self.heads.stop)
        q_NMH, k_NMH = map_vectors(own.seed, own.layer, size, device)
        self.matrix = map_rows(q_NMH[heads], k_NMH[heads], 0, own.length)

    def rows(self, first: int, end: int, device: torch.device) -> torch.Tensor:
        return self.matrix[:, first:end, :end]


def inner(place: Place) -> EmbeddedMaps.Config:
    """Return the config of a layer's inner module, the interface of every mixer's file."""
    return EmbeddedMaps.Config(
        n_heads=place.shape.heads,
        length=place.shape.seq_len,
        head_dim=place.shape.head_dim,
        layer=place.layer,
        seed=place.seed,
    )
