"""MixiT's mixing: one function for all forms of its matrix (forms.py).

    out_i = sum over the visible j of A_ij v_j

Besides these forms there is a reference for tests: the formula, with A as it is drawn.

Shapes: B batch, L length, N heads, H head width.
"""

from typing import Literal

import torch

from mixit_titan.kernels.documents import document_spans
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
    """Return what `causal_mix` needs for one layer's heads. (The sharded form's state is made in
    shards.)"""
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
    documents: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return A v, with the top-left corner of A. With `documents`, a table that `document_table`
    makes from the positions of a batch, each document of a row is mixed by a corner of its own:
    A[n, positions[b, i], positions[b, j]] within a document, and nothing across documents."""
    if v_BLNH.shape[1] > spec.length:
        raise ValueError(f"v has {v_BLNH.shape[1]} positions, and the matrices {spec.length}")
    heads = len(state["stds" if form == "generated" else "matrix"])
    if v_BLNH.shape[2] != heads:
        raise ValueError(f"v has {v_BLNH.shape[2]} heads, and the matrices {heads}")
    if form == "reference":
        return _reference(v_BLNH, state["matrix"], documents)
    if form == "generated":
        flags = (spec.causal, spec.identity, spec.sink_head, spec.noise == "sign", False)
        return generated_mix(v_BLNH, state["key"], state["means"], state["stds"], documents, *flags)
    matrix_NLL = state["matrix"]
    # Even if it has been moved to a GPU since; one that was packed there has tiles instead of rows.
    with_transpose = matrix_NLL.ndim == 3 and matrix_NLL.shape[2] > spec.length
    add_v = identity_apart(spec, matrix_NLL.dtype)
    flags = (spec.causal, with_transpose, add_v, False)
    return StoredMix.apply(v_BLNH, matrix_NLL, documents, *flags)


def _reference(
    v_BLNH: torch.Tensor, a_NLL: torch.Tensor, documents: torch.Tensor | None
) -> torch.Tensor:
    a_NLL = a_NLL.to(v_BLNH.dtype)
    if documents is None:
        return _corner(a_NLL, v_BLNH)
    out_BLNH = torch.zeros_like(v_BLNH)
    for (start, end), rows in document_spans(documents).items():
        out_BLNH[rows, start:end] = _corner(a_NLL, v_BLNH[rows, start:end])
    return out_BLNH


def _corner(a_NLL: torch.Tensor, v_BLNH: torch.Tensor) -> torch.Tensor:
    length = v_BLNH.shape[1]
    return torch.einsum("nij,bjnh->binh", a_NLL[:, :length, :length], v_BLNH)
