"""The mixing matrices of one layer as a module that fits into any model."""

import torch
from torch import nn

from mixit_titan.kernels.causal_mix import causal_mix, mixing_state
from mixit_titan.kernels.forms import Form
from mixit_titan.kernels.mixing import MatrixSpec


class MixingMatrices(nn.Module):
    """Computes out_i = sum over the visible j of A_ij v_j, with the fixed random A of one layer.

    Nothing is drawn before `draw`, except in the sharded form, whose rows a subclass draws. A
    matrix is never saved: it is a function of the seed.
    """

    def __init__(
        self, spec: MatrixSpec, layer: int, heads: range, form: Form, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.spec, self.layer, self.form = spec, layer, form
        self.dtype = dtype
        """The dtype that A is kept in, that of the values it multiplies."""
        self.take_heads(heads)

    def take_heads(self, heads: range) -> None:
        """Make room for the matrices of these heads."""
        self.heads = heads
        n, m = len(heads), self.spec.length
        if self.form == "sharded":
            # A parameter for FSDP2 only, in a shape that it can split into rows.
            matrix = torch.empty(n * m, m, dtype=self.dtype)
            self.matrix = nn.Parameter(matrix, requires_grad=False)
        elif self.form == "stored":
            # Replaced by what the device needs; the placeholder takes no memory.
            self.register_buffer("matrix", torch.empty(n, 0, dtype=self.dtype), persistent=False)
        else:
            for name, shape, dtype in (
                ("key", (3,), torch.int64),
                ("means", (n, m), torch.int32),
                ("stds", (n,), torch.int32),
            ):
                self.register_buffer(name, torch.empty(shape, dtype=dtype), persistent=False)

    def draw(self, device: torch.device) -> None:
        """Fill the buffers with the matrices, on the device where they are."""
        state = mixing_state(
            self.form, self.spec, self.layer, self.heads, dtype=self.dtype, device=device
        )
        for name, tensor in state.items():
            setattr(self, name, tensor)

    def state(self) -> dict[str, torch.Tensor]:
        """Return what `causal_mix` takes."""
        if self.form == "generated":
            return {"key": self.key, "means": self.means, "stds": self.stds}
        m = self.spec.length
        rows = self.form == "sharded"
        return {"matrix": self.matrix.view(-1, m, m) if rows else self.matrix}

    def forward(
        self, v_BLNH: torch.Tensor, *, documents: torch.Tensor | None = None
    ) -> torch.Tensor:
        return causal_mix(v_BLNH, self.form, self.spec, self.state(), documents)
