"""Rank collapse: the rank that random tokens keep under four kinds of mixing, layer by layer.

h' = W_V h A^T without skip connections, as in Theorem 2.1, with random weights throughout. A is
causal: MixiT's, that of softmax attention with random queries and keys (of normalized tokens, as in
a Llama), the uniform baseline, where a token takes the mean of its prefix, or the identity, which
leaves W_V by itself.

Shapes: P models, n width, m tokens.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from mixit_titan.analysis.covariance_sde import Layers
from mixit_titan.analysis.spectrum import effective_rank
from mixit_titan.kernels.mixing import mixing_matrix
from mixit_titan.model.recipes import RECIPES
from mixit_titan.model.shapes import Shape

MIXERS = ("identity", "mixit", "softmax", "uniform")
TOKENS = 8
_MODELS = 8


def collapse_rows(*, width: int, depth: int, seed: int) -> list[dict[str, Any]]:
    """The effective rank of the tokens and their mean cosine after each layer, averaged over
    several random models. Layer 0 is the input: independent tokens."""
    rows = []
    for mixer in MIXERS:
        rng = np.random.default_rng(seed)
        mix = _mixer(mixer, width, rng, seed)
        h_Pnm = rng.standard_normal((_MODELS, width, TOKENS), dtype=np.float32)
        for layer in range(depth + 1):
            if layer:
                h_Pnm = _weights(rng, width) @ h_Pnm @ np.swapaxes(mix(h_Pnm, layer), -1, -2)
                h_Pnm /= np.sqrt(np.mean(h_Pnm**2, (1, 2), keepdims=True))  # against underflow
            rows.append({"mixer": mixer, "width": width, "layer": layer, **alikeness(h_Pnm)})
    return rows


def alikeness(h_Pnm: np.ndarray) -> dict[str, float]:
    """The effective rank of the tokens (1 when all are multiples of one vector), and the mean
    cosine of two different ones."""
    values_Pm = torch.linalg.svdvals(torch.from_numpy(h_Pnm).double())
    unit_Pnm = h_Pnm / np.linalg.norm(h_Pnm, axis=1, keepdims=True)
    cosines_Pmm = np.swapaxes(unit_Pnm, -1, -2) @ unit_Pnm
    m = h_Pnm.shape[-1]
    pairs = (cosines_Pmm.sum((1, 2)) - m) / (m * (m - 1))
    return {
        "effective_rank": effective_rank(values_Pm).mean().item(),
        "cosine": float(pairs.mean()),
    }


def _mixer(
    name: str, width: int, rng: np.random.Generator, seed: int
) -> Callable[[np.ndarray, int], np.ndarray]:
    """A function from h and the index of a layer to A."""
    if name == "mixit":
        shape = Shape(width=width, layers=1, heads=1, hidden=1, vocab=1, seq_len=TOKENS)
        spec = RECIPES["paper"].matrix_spec(seed, shape)
        return lambda h_Pnm, layer: mixing_matrix(spec, layer, range(_MODELS)).numpy()
    if name == "identity":
        return lambda h_Pnm, layer: np.eye(TOKENS, dtype=np.float32)
    visible_mm = Layers(tokens=TOKENS, causal=True).visible_mm.astype(np.float32)
    if name == "uniform":
        return lambda h_Pnm, layer: visible_mm / visible_mm.sum(1, keepdims=True)

    def softmax(h_Pnm: np.ndarray, layer: int) -> np.ndarray:
        normed_Pnm = h_Pnm / np.sqrt(np.mean(h_Pnm**2, 1, keepdims=True))
        q_Pnm, k_Pnm = (_weights(rng, width) @ normed_Pnm for _ in range(2))
        logits_Pmm = np.swapaxes(q_Pnm, -1, -2) @ k_Pnm / math.sqrt(width)
        weights_Pmm = np.exp(logits_Pmm - logits_Pmm.max(-1, keepdims=True)) * visible_mm
        return weights_Pmm / weights_Pmm.sum(-1, keepdims=True)

    return softmax


def _weights(rng: np.random.Generator, width: int) -> np.ndarray:
    w_Pnn = rng.standard_normal((_MODELS, width, width), dtype=np.float32)
    return w_Pnn / np.float32(math.sqrt(width))
