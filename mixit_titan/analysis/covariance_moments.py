"""Means and covariances of the entries of Phi, exactly: after layers of any width, and of the SDE.

The recursion is quadratic in its Gaussians and linear in Phi, so that the first two moments of Phi
after a layer are linear in those before it (covariance_sde.py has the model). No simulation can
tell how fast a difference of order 1 / width falls as well as these.

Shapes: m tokens; a second moment E[Phi_ab Phi_cd] is (m, m, m, m).
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from mixit_titan.analysis.covariance_sde import Layers, drift

_STEPS = 32  # of Runge-Kutta: far more exact than any simulation
_SLOTS = ("ia", "jb", "kc", "ld")


@dataclass(frozen=True)
class Moments:
    mean_mm: np.ndarray
    second_mmmm: np.ndarray

    @classmethod
    def of_point(cls, phi_mm: np.ndarray) -> "Moments":
        return cls(phi_mm, _outer(phi_mm, phi_mm))

    @property
    def covariance_mmmm(self) -> np.ndarray:
        return self.second_mmmm - _outer(self.mean_mm, self.mean_mm)


def layers_moments(layers: Layers, phi_mm: np.ndarray, *, width: int, depth: int) -> Moments:
    """After `depth` layers of `width`."""
    now = Moments.of_point(phi_mm)
    for _ in range(depth):
        now = Moments(
            now.mean_mm + drift(layers, now.mean_mm) / width,
            _second_after_layer(layers, now.second_mmmm, width),
        )
    return now


def sde_moments(layers: Layers, phi_mm: np.ndarray, *, time: float) -> Moments:
    start = Moments.of_point(phi_mm)
    return Moments(
        _solve(lambda mean_mm: drift(layers, mean_mm), start.mean_mm, time),
        _solve(lambda second: second_change(layers, second), start.second_mmmm, time),
    )


def second_change(layers: Layers, second: np.ndarray) -> np.ndarray:
    """d/dt E[Phi_ab Phi_cd] of the SDE: its drift times Phi, twice, and its diffusion."""
    of_values, of_mixing = layers.diffusion
    drifted = _drift_of_first(layers, second)
    pairs = [_paired(layers, second, [pair]) for pair in combinations(range(4), 2)]
    within = drifted + _swapped(drifted)
    # The pairs (i, j) and (k, l) belong to one Phi each: they are the drift.
    return within + of_values * _wishart(second) + of_mixing * sum(pairs[1:-1]) / layers.tokens


def _second_after_layer(layers: Layers, second: np.ndarray, width: int) -> np.ndarray:
    """E[Phi'_ab Phi'_cd] with Phi' = lambda^2 Phi + gamma^2 A S A^T + lambda gamma (Z A^T + A Z^T),
    where Z = h^T W_V h / n has E[Z_ab Z_cd] = Phi_ac Phi_bd / n."""
    skip, branch = layers.skip**2, layers.branch
    mixed = second + _drift_of_first(layers, second) / (width * branch)  # E[(A Phi A^T)_ab Phi_cd]
    crossed = _swapped(mixed)
    cross = sum(np.einsum(f"{order}->abcd", crossed) for order in ("acbd", "adbc", "bcad", "bdac"))
    return (
        skip**2 * second
        + skip * branch * (mixed + crossed + cross / width)
        + branch**2 * _mixed_twice(layers, second + _wishart(second) / width, width)
    )


def _mixed_twice(layers: Layers, second: np.ndarray, width: int) -> np.ndarray:
    """E[(A S A^T)_ab (A S A^T)_cd]: the fourth moment of A by Isserlis' theorem, over all ways to
    pair some of the four A; those without a partner are the identity."""
    pairs = list(combinations(range(4), 2))
    perfect = [[pairs[n], pairs[-1 - n]] for n in range(3)]
    scale = 1 / (width * layers.tokens)
    return (
        second
        + scale * sum(_paired(layers, second, [pair]) for pair in pairs)
        + scale**2 * sum(_paired(layers, second, two) for two in perfect)
    )


def _paired(layers: Layers, second: np.ndarray, pairs: list[tuple[int, int]]) -> np.ndarray:
    """sum over ijkl of second_ijkl, with delta_ab C_a,ij for a pair of rows a and b of A that meet
    i and j, and delta_ia for what has no partner."""
    eye = np.eye(layers.tokens)
    c_iajb = np.einsum("ab,aij->iajb", eye, layers.projections_mmm)
    alone = set(range(4)) - {n for pair in pairs for n in pair}
    factors = [(_SLOTS[n], eye) for n in alone]
    factors += [(_SLOTS[first] + _SLOTS[other], c_iajb) for first, other in pairs]
    names, tensors = zip(*factors, strict=True)
    return np.einsum(f"ijkl,{','.join(names)}->abcd", second, *tensors)


def _drift_of_first(layers: Layers, second: np.ndarray) -> np.ndarray:
    """E[drift(Phi)_ab Phi_cd]."""
    return _swapped(drift(layers, _swapped(second)))


def _swapped(second: np.ndarray) -> np.ndarray:
    """E[Phi_cd Phi_ab]: (m, m) and (m, m) exchanged, whatever each of them has become."""
    return second.transpose(2, 3, 0, 1)


def _wishart(second: np.ndarray) -> np.ndarray:
    """E[Phi_ac Phi_bd + Phi_ad Phi_bc], from E[Phi_ab Phi_cd]."""
    return np.einsum("acbd->abcd", second) + np.einsum("adbc->abcd", second)


def _outer(left_mm: np.ndarray, right_mm: np.ndarray) -> np.ndarray:
    return np.einsum("ab,cd->abcd", left_mm, right_mm)


def _solve(
    change: Callable[[np.ndarray], np.ndarray], value: np.ndarray, time: float
) -> np.ndarray:
    """The classical Runge-Kutta method."""
    step = time / _STEPS
    for _ in range(_STEPS):
        k1 = change(value)
        k2 = change(value + step / 2 * k1)
        k3 = change(value + step / 2 * k2)
        k4 = change(value + step * k3)
        value = value + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return value
