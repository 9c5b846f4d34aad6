"""The maps of the embedding mixer as a pure function of (seed, layer, head, i, j).

    A_ij = exp(q_i k_j / sqrt(h)) / sum over j' <= i of exp(q_i k_j' / sqrt(h))    for j <= i

q and k have one random vector per position.

Shapes: N heads, M positions, H head width, R rows, L columns.
"""

import math

import torch

from mixit_titan.kernels.named_normals import draw_normal


def map_names(layer: int) -> tuple[str, str]:
    """Return the names that the queries and the keys of a layer are drawn by."""
    return f"layers.{layer}.maps.q", f"layers.{layer}.maps.k"


def map_vectors(
    seed: int, layer: int, size: tuple[int, int, int], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return q and k of all heads, each of `size` (N, M, H) in float32. A shorter model has
    different ones."""
    q_NMH, k_NMH = (draw_normal(seed, name, torch.Size(size), device) for name in map_names(layer))
    return q_NMH, k_NMH


def map_rows(q_NMH: torch.Tensor, k_NMH: torch.Tensor, first: int, end: int) -> torch.Tensor:
    """Return A[first:end, :end], of shape (N, R, L)."""
    scores_NRL = q_NMH[:, first:end] @ k_NMH[:, :end].transpose(1, 2) / math.sqrt(q_NMH.shape[-1])
    future_RL = torch.ones_like(scores_NRL[0], dtype=torch.bool).triu(first + 1)
    return scores_NRL.masked_fill(future_RL, -torch.inf).softmax(-1)
