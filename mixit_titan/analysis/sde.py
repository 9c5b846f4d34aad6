"""A test of Theorem 2.1: random layers of growing width and depth against their SDE.

There are three recursions: `theorem`, without a causal mask; `causal`, as in MixiT; and `skip`,
causal with the skip connection of the official recipe. Each is simulated at several widths with
depth / width fixed, and so is its SDE. Both are compared with the exact moments of the SDE.
"""

import math
from typing import Any

import numpy as np

from mixit_titan.analysis.collapse import TOKENS as COLLAPSE_TOKENS
from mixit_titan.analysis.collapse import collapse_rows
from mixit_titan.analysis.covariance_moments import Moments, layers_moments, sde_moments
from mixit_titan.analysis.covariance_sde import (
    Layers,
    first_covariance,
    integrate_sde,
    simulate_layers,
)

TOKENS = 4
RECURSIONS = {
    "theorem": Layers(tokens=TOKENS, causal=False),
    "causal": Layers(tokens=TOKENS, causal=True),
    "skip": Layers(tokens=TOKENS, causal=True, skip=math.sqrt(0.5)),
}
STEPS = 64
"""Euler-Maruyama steps; their discretization error is that of layers of width STEPS / time."""


def sde(*, widths: tuple[int, ...], ratio: float, paths: int, seed: int = 0) -> dict[str, Any]:
    """Compare the moments of Phi at depth = ratio * width with those of the SDE, for each recursion
    and width, with the sampling error of `paths` simulated models; and measure rank collapse over
    at least as many layers as the width."""
    collapse = [
        row
        for width in widths
        for row in collapse_rows(width=width, depth=round(max(1, ratio) * width), seed=seed)
    ]
    return {
        "tokens": TOKENS,
        "ratio": ratio,
        "paths": paths,
        "steps": STEPS,
        "recursions": [
            {"recursion": name, **_recursion(layers, widths, ratio, paths, seed)}
            for name, layers in RECURSIONS.items()
        ],
        "collapse": {"tokens": COLLAPSE_TOKENS, "rows": collapse},
    }


def _recursion(
    layers: Layers, widths: tuple[int, ...], ratio: float, paths: int, seed: int
) -> dict[str, Any]:
    phi_mm = first_covariance(layers.tokens)
    limit = sde_moments(layers, phi_mm, time=ratio)
    rows = []
    for width in widths:
        size = {"width": width, "depth": round(ratio * width)}
        exact = layers_moments(layers, phi_mm, **size)
        phi_Pmm = simulate_layers(layers, phi_mm, **size, paths=paths, seed=seed + width)
        rows.append(
            {
                **size,
                **compared(phi_Pmm, limit),
                "variance_exact": _variances(exact.covariance_mmmm).tolist(),
                "mean_difference_exact": _distance(exact.mean_mm, limit.mean_mm),
                "covariance_difference_exact": _distance(
                    exact.covariance_mmmm, limit.covariance_mmmm
                ),
            }
        )
    integrated = integrate_sde(layers, phi_mm, time=ratio, steps=STEPS, paths=paths, seed=seed)
    return {
        "causal": layers.causal,
        "skip": layers.skip,
        "limit": {
            "mean": limit.mean_mm.tolist(),
            "variance": _variances(limit.covariance_mmmm).tolist(),
        },
        "euler_maruyama": compared(integrated, limit),
        "rows": rows,
        "slopes": {
            what: slope(widths, [row[f"{what}_difference_exact"] for row in rows])
            for what in ("mean", "covariance")
        },
    }


def compared(phi_Pmm: np.ndarray, limit: Moments) -> dict[str, Any]:
    """The mean and variance of each entry of a simulated Phi; the relative distance of all means,
    and of all covariances, from those of the SDE; and the distance that sampling error alone would
    give if the simulation followed the SDE (`_error`)."""
    paths, m, _ = phi_Pmm.shape
    mean_mm = phi_Pmm.mean(0)
    centered_PE = (phi_Pmm - mean_mm).reshape(paths, m * m)
    covariance_EE = centered_PE.T @ centered_PE / (paths - 1)
    fourth_EE = (centered_PE**2).T @ centered_PE**2 / paths
    variance_mm = np.diag(covariance_EE).reshape(m, m)
    covariance_errors_EE = np.sqrt((fourth_EE - covariance_EE**2) / paths)
    covariance_mmmm = covariance_EE.reshape(m, m, m, m)
    return {
        "mean": mean_mm.tolist(),
        "variance": variance_mm.tolist(),
        "variance_error": np.diag(covariance_errors_EE).reshape(m, m).tolist(),
        "mean_difference": _distance(mean_mm, limit.mean_mm),
        "mean_error": _share(np.sqrt(variance_mm / paths), limit.mean_mm),
        "covariance_difference": _distance(covariance_mmmm, limit.covariance_mmmm),
        "covariance_error": _share(covariance_errors_EE, limit.covariance_mmmm),
    }


def slope(widths: tuple[int, ...], differences: list[float]) -> float | None:
    """The slope of log difference over log width: -1 for a difference proportional to 1 / width."""
    if len(widths) < 2:
        return None
    return float(np.polyfit(np.log(widths), np.log(differences), 1)[0])


def _variances(covariance_mmmm: np.ndarray) -> np.ndarray:
    return np.einsum("abab->ab", covariance_mmmm)


def _distance(found: np.ndarray, expected: np.ndarray) -> float:
    return _share(found - expected, expected)


def _share(part: np.ndarray, whole: np.ndarray) -> float:
    return float(np.linalg.norm(part) / np.linalg.norm(whole))
