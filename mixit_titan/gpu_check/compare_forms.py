"""A worker that compares the product of one form with the formula, in bfloat16.

The matrices are those of the official recipe, which mix more strongly than the paper's and have a
sink head. All heads are included, because they make offsets large; the formula takes a few of them
at a time, in float32.
"""

import dataclasses

import torch

from mixit_titan.device import local_device
from mixit_titan.gpu_check.packed_rows import packed_positions
from mixit_titan.gpu_check.process import Case, answer
from mixit_titan.kernels.causal_mix import causal_mix, mixing_state
from mixit_titan.kernels.documents import document_table
from mixit_titan.kernels.forms import Form
from mixit_titan.kernels.mixing import MatrixSpec, Noise, mixing_matrix
from mixit_titan.kernels.stored import keep
from mixit_titan.model.recipes import RECIPES
from mixit_titan.model.shapes import Shape

_BATCH = 3
_HEADS = 4  # heads that the formula takes at a time
_LAYER = 1


def compare(heads: int, width: int, length: int, form: Form, noise: Noise) -> Case:
    """Return the relative errors of each comparison: `largest`, over the largest value, and `norm`,
    over the norm of the values."""
    device = local_device()
    # The sharded form needs: in float32, once more without its diagonal, and in bfloat16. The
    # others are made block by block; the formula takes some heads at a time.
    needed = (heads if form == "sharded" else 2 * _HEADS) * length**2 * (4 + 4 + 2)
    if device.type == "cuda" and needed > 0.9 * torch.cuda.get_device_properties(0).total_memory:
        return {"needed_bytes": needed}
    shape = Shape(width=heads * width, layers=1, heads=heads, hidden=1, vocab=1, seq_len=length)
    spec = dataclasses.replace(RECIPES["official"], noise=noise).matrix_spec(0, shape)
    dtype = torch.bfloat16
    if form == "sharded":  # as it is gathered: by rows, not packed
        whole = mixing_matrix(spec, _LAYER, range(heads), device=device)
        state = {"matrix": keep(whole, spec, dtype)}
    else:
        state = mixing_state(form, spec, _LAYER, range(heads), dtype=dtype, device=device)
    torch.manual_seed(0)
    v, grad = (torch.randn(_BATCH, length, heads, width, device=device).to(dtype) for _ in "vg")
    packed = document_table(packed_positions(_BATCH, length).to(device))
    found = {}
    for name, documents in (("whole rows", None), ("documents", packed)):
        ours = _both(v, grad, form, spec, state, documents)
        errors = [Error(), Error()]
        for first in range(0, heads, _HEADS):
            part = slice(first, min(first + _HEADS, heads))
            right = _by_formula(v[:, :, part], grad[:, :, part], spec, part, documents)
            for error, one, other in zip(errors, ours, right, strict=True):
                error.add(one[:, :, part].float(), other)
        found[f"{name}, forward"], found[f"{name}, backward"] = (e.relative() for e in errors)
    return found


def _both(
    v: torch.Tensor,
    grad: torch.Tensor,
    form: str,
    spec: MatrixSpec,
    state: dict[str, torch.Tensor],
    documents: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the product and its gradient."""
    v = v.detach().requires_grad_()
    out = causal_mix(v, form, spec, state, documents)
    return out.detach(), torch.autograd.grad(out, v, grad)[0]


def _by_formula(
    v: torch.Tensor,
    grad: torch.Tensor,
    spec: MatrixSpec,
    part: slice,
    documents: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    heads = range(part.start, part.stop)
    state = mixing_state("reference", spec, _LAYER, heads, dtype=torch.float32, device=v.device)
    return _both(v.float(), grad.float(), "reference", spec, state, documents)


class Error:
    """Errors accumulated over the heads."""

    def __init__(self) -> None:
        self.largest = self.value = self.squares = self.norm = 0.0

    def add(self, ours: torch.Tensor, right: torch.Tensor) -> None:
        error = (ours - right).double().nan_to_num(nan=float("inf"))
        self.largest = max(self.largest, float(error.abs().max()))
        self.value = max(self.value, float(right.abs().max()))
        self.squares += float(error.square().sum())
        self.norm += float(right.double().square().sum())

    def relative(self) -> dict[str, float]:
        return {
            "largest": self.largest / self.value,
            "norm": (self.squares / self.norm) ** 0.5,
        }


if __name__ == "__main__":
    answer(compare)
