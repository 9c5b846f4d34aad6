"""MixiT's mixing: a fixed random matrix per head, independent of the input.

    out_i = sum over the visible j of A_ij v_j        A = I + std (W - mean(W))

W is normal, and a function of (seed, layer, head, i, j); mean(W) is over the j that i sees, so that
each row of A sums to 1. With std = 1 and these draws of one head:

position   W                     A
0          0.3                   1
1          0.5  -0.1             0.3  0.7
2          0.2   0.4  -0.6       0.2  0.4  0.4

The products, stored and generated, are in kernels/.
"""

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torchtitan.config import TORCH_DTYPE_MAP
from torchtitan.distributed import ParallelDims
from torchtitan.protocols.module import Module

from mixit_titan.device import has_gpu
from mixit_titan.kernels.forms import Form
from mixit_titan.kernels.matrices import MixingMatrices
from mixit_titan.kernels.mixing import MatrixSpec, draw_rows
from mixit_titan.kernels.stored import identity_apart
from mixit_titan.log import logger
from mixit_titan.model.mixers.positional import Place

_ROWS = 64  # drawn at a time for a shard


class InnerMixing(MixingMatrices, Module):
    """Holds the matrices of one layer, created and placed as torchtitan does: on the meta device,
    sharded over ranks, then drawn."""

    @dataclass(kw_only=True, slots=True)
    class Config(Module.Config):
        spec: MatrixSpec
        layer: int
        n_heads: int
        form: Form
        dtype: str = "float32"
        """The dtype that A is kept in, that of the values it multiplies."""

    def __init__(self, config: Config) -> None:
        heads, dtype = range(config.n_heads), TORCH_DTYPE_MAP[config.dtype]
        super().__init__(config.spec, config.layer, heads, config.form, dtype)

    def _distribute_states(self, parallel_dims: ParallelDims) -> None:
        """Under tensor parallelism a rank draws the matrices of its own heads."""
        mesh = parallel_dims.get_optional_mesh("tp")
        if mesh is not None:
            share = len(self.heads) // mesh.size()
            with torch.device("meta"):
                self.take_heads(self.heads[share * mesh.get_local_rank() :][:share])

    def _init_self_buffers(self, *, buffer_device: torch.device | None = None) -> None:
        _log_form(self.form)
        if self.form != "sharded":
            self.draw(buffer_device or next(self.buffers()).device)

    def _init_self_parameters(self) -> None:
        if self.form == "sharded":
            self._draw_shard()

    @torch.no_grad()
    def _draw_shard(self) -> None:
        """Fill the rows of the matrices that belong to this rank."""
        spec, m = self.spec, self.spec.length
        local, first = self.matrix, 0
        if isinstance(self.matrix, DTensor):
            local = self.matrix.to_local()
            _, (first, _) = compute_local_shape_and_global_offset(
                self.matrix.shape, self.matrix.device_mesh, self.matrix.placements
            )
        apart = identity_apart(spec, self.dtype)
        for n, head in enumerate(self.heads):
            top, bottom = max(first, n * m), min(first + len(local), (n + 1) * m)
            for row in range(top, bottom, _ROWS):
                rows = torch.arange(row, min(row + _ROWS, bottom), device=local.device)
                drawn = draw_rows(spec, self.layer, [head], rows - n * m, m, less_identity=apart)
                local[rows - first] = drawn[0].to(local.dtype)

    def _save_to_state_dict(self, *args: Any) -> None:
        """Save nothing: the matrices are a function of the seed."""

    def _load_from_state_dict(self, *args: Any) -> None:
        """Load nothing: the matrices are a function of the seed."""


def inner(place: Place) -> InnerMixing.Config:
    """Return the config of a layer's inner module, the interface of every mixer's file."""
    return InnerMixing.Config(
        spec=place.spec,
        layer=place.layer,
        n_heads=place.shape.heads,
        form=place.form,
        dtype=place.dtype,
    )


@functools.cache
def _log_form(form: Form) -> None:
    """Log the form once per process, not once per layer."""
    slow = form == "generated" and not has_gpu()
    logger.info(
        f"Mixing matrices are {form}"
        + (", which without a GPU saves memory and costs time" if slow else "")
    )
