"""The mixing of MixiT: one function for all forms of its matrix (forms.py).

    out_i = sum over the visible j of A_ij v_j

Beside the forms there is the reference: the formula, with A as it is drawn; for tests.

Shapes: B batch, L length, N heads, H head width.
"""

from typing import Literal

import torch

from mixit_titan.kernels.documents import same_document
from mixit_titan.kernels.forms import Form
from mixit_titan.kernels.generated import generated_mix, generated_state
from mixit_titan.kernels.mixing import MatrixSpec, mixing_matrix
from mixit_titan.kernels.stored import StoredMix, identity_apart, stored_matrix


def mixing_state(
    form: Form | Literal["reference"],
    spec: MatrixSpec,
    layer: int,
    heads: range,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> dict[str, torch.Tensor]:
    """What `causal_mix` needs of one layer's heads. (The sharded form's is made in shards.)"""
    if form == "generated":
        return generated_state(spec, layer, heads, device)
    if form == "stored":
        return {"matrix": stored_matrix(spec, layer, heads, dtype=dtype, device=device)}
    return {"matrix": mixing_matrix(spec, layer, heads, device=device)}


def causal_mix(
    v_BLNH: torch.Tensor,
    form: Form | Literal["reference"],
    spec: MatrixSpec,
    state: dict[str, torch.Tensor],
    positions_BL: torch.Tensor | None = None,
) -> torch.Tensor:
    """A v, with the top-left corner of A. With positions, each document of a row is mixed by a
    corner of its own: A[n, positions[b, i], positions[b, j]] within a document, nothing across.
    One row of positions can serve the whole batch."""
    if v_BLNH.shape[1] > spec.length:
        raise ValueError(f"v has {v_BLNH.shape[1]} positions, and the matrices {spec.length}")
    if positions_BL is not None:
        positions_BL = positions_BL.expand(len(v_BLNH), -1)
    if form == "reference":
        return _reference(v_BLNH, state["matrix"], positions_BL)
    if form == "generated":
        flags = (spec.causal, spec.identity, spec.sink_head, False)
        return generated_mix(
            v_BLNH, state["key"], state["means"], state["stds"], positions_BL, *flags
        )
    matrix_NLL = state["matrix"]
    if len(matrix_NLL) != v_BLNH.shape[2]:
        raise ValueError(f"v has {v_BLNH.shape[2]} heads, and the matrices {len(matrix_NLL)}")
    with_transpose = matrix_NLL.shape[2] > spec.length  # also if it has been moved to a GPU since
    add_v = identity_apart(spec, matrix_NLL.dtype)
    flags = (spec.causal, with_transpose, add_v, False)
    return StoredMix.apply(v_BLNH, matrix_NLL, positions_BL, *flags)


def _reference(
    v_BLNH: torch.Tensor, a_NLL: torch.Tensor, positions_BL: torch.Tensor | None
) -> torch.Tensor:
    length = v_BLNH.shape[1]
    a_NLL = a_NLL.to(v_BLNH.dtype)
    if positions_BL is None:
        return torch.einsum("nij,bjnh->binh", a_NLL[:, :length, :length], v_BLNH)
    a_NBLL = a_NLL[:, positions_BL.unsqueeze(2), positions_BL.unsqueeze(1)]
    return torch.einsum("nbij,bjnh->binh", a_NBLL * same_document(positions_BL), v_BLNH)
