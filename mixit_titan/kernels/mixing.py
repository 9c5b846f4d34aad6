"""The mixing matrix A of MixiT as a pure function of (seed, layer, head, i, j), and its product.

    A = I + W - mean(W)      out_i = sum over j <= i of A_ij v_j

W_ij is Gaussian, mean(W) of row i is taken over the visible prefix j <= i, so that each row of A
sums to 1. Nothing is stored between calls and nothing is drawn from torch's generator.

Shapes: N heads, L rows and columns, B batch, H head width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from mixit_titan.kernels.philox import normals, philox, uniform

# The four words of one Philox call serve four neighbouring 32-column strips of a row, so that a
# tiled kernel can use all four as whole tiles: column j takes word (j // 32) % 4.
_STRIP = 32
_GROUP = 4 * _STRIP
# Counter word c3 is the layer; this bit sets the per-head draws apart from the matrix itself.
_HEAD_DOMAIN = 1 << 31


@dataclass(frozen=True, kw_only=True)
class MatrixSpec:
    """Everything that A depends on, except for layer and head."""

    seed: int
    length: int
    """m: rows and columns of A. A shorter sequence takes the top-left corner."""
    std_low: float
    std_high: float
    """Standard deviation of W: drawn once per head, uniform between the two."""
    identity: bool
    sink_head: bool
    """Head 0 is not random: half itself, half position 0."""


def draw_words(
    seed: int, layer: int, head: int, rows: torch.Tensor, length: int
) -> tuple[torch.Tensor, ...]:
    """The generator's integers behind W[rows, :length]: four blocks of (rows, groups, 32)."""
    groups = -(-length // _GROUP)
    column = torch.arange(groups * _STRIP, device=rows.device).view(1, groups, _STRIP)
    return philox(seed, column, rows.view(-1, 1, 1), head, layer)


def draw_noise(seed: int, layer: int, head: int, rows: torch.Tensor, length: int) -> torch.Tensor:
    """W[rows, :length] at standard deviation 1, not yet causal."""
    strips = normals(draw_words(seed, layer, head, rows, length))
    return torch.stack(strips, dim=2).flatten(1)[:, :length]


def head_std(spec: MatrixSpec, layer: int, head: int, device: torch.device) -> torch.Tensor:
    """Standard deviation of head `head`: std_low + u (std_high - std_low), u ~ U(0, 1)."""
    zero = torch.zeros((), dtype=torch.int64, device=device)
    u = uniform(philox(spec.seed, zero, 0, head, layer | _HEAD_DOMAIN)[0])
    return spec.std_low + u * (spec.std_high - spec.std_low)


def mixing_matrix(
    spec: MatrixSpec,
    layer: int,
    heads: Sequence[int],
    *,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """A of shape (len(heads), m, m) in float32."""
    device = torch.device(device)
    rows = torch.arange(spec.length, device=device)
    a_NLL = torch.empty(len(heads), spec.length, spec.length, device=device)
    for n, head in enumerate(heads):
        if spec.sink_head and head == 0:
            a_NLL[n] = _sink(spec.length, device)
            continue
        noise = draw_noise(spec.seed, layer, head, rows, spec.length)
        a_NLL[n] = centre(noise * head_std(spec, layer, head, device), identity=spec.identity)
    return a_NLL


def centre(noise_LL: torch.Tensor, *, identity: bool) -> torch.Tensor:
    """tril(I + W - mean(W)), the mean of row i over its i + 1 visible entries."""
    noise_LL = noise_LL.tril()
    visible = torch.arange(1, noise_LL.shape[-1] + 1, device=noise_LL.device)
    a_LL = (noise_LL - (noise_LL.sum(-1) / visible).unsqueeze(-1)).tril()
    if identity:
        a_LL.diagonal().add_(1.0)
    return a_LL


def _sink(length: int, device: torch.device) -> torch.Tensor:
    """Row i puts one half on itself and one half on position 0; row 0 holds only one half."""
    a_LL = 0.5 * torch.eye(length, device=device)
    a_LL[:, 0] = 0.5
    return a_LL


def causal_mix(
    a_NLL: torch.Tensor, v_BLNH: torch.Tensor, positions_BL: torch.Tensor | None = None
) -> torch.Tensor:
    """out[b, i, n] = sum over j <= i of A[n, i, j] v[b, j, n], with the top-left corner of A.

    With positions, each document of a row is mixed by the corner of its own:
    A[n, positions[b, i], positions[b, j]] within a document, nothing across.
    """
    length = v_BLNH.shape[1]
    a_NLL = a_NLL[:, :length, :length].to(v_BLNH.dtype)
    if positions_BL is None:
        # einsum folds the batch into the columns of the product: one matrix product a head.
        return torch.einsum("nij,bjnh->binh", a_NLL, v_BLNH)
    a_NBLL = a_NLL[:, positions_BL.unsqueeze(2), positions_BL.unsqueeze(1)]
    return torch.einsum("nbij,bjnh->binh", a_NBLL * same_document(positions_BL), v_BLNH)


def same_document(positions_BL: torch.Tensor) -> torch.Tensor:
    """(B, L, L): whether tokens i and j of a row are of one document. Positions restart at 0 with
    each document, so index minus position is the index of its first token."""
    first_BL = torch.arange(positions_BL.shape[1], device=positions_BL.device) - positions_BL
    return first_BL.unsqueeze(2) == first_BL.unsqueeze(1)
