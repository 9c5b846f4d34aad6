"""Exact means and covariances of the entries of Phi, for layers of any width and for the SDE.

The recursion is quadratic in its Gaussians and linear in Phi, so the first two moments of Phi after
a layer are linear in those before it (covariance_sde.py has the model). No simulation resolves the
decay of a difference of order 1 / width as well as these do.

Shapes: m tokens; a second moment E[Phi_ab Phi_cd] is (m, m, m, m).
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from mixit_titan.analysis.covariance_sde import Layers, drift

_STEPS = 32  # of Runge-Kutta: far more accurate than any simulation
_SLOTS = ("ia", "jb", "kc", "ld")


@dataclass(frozen=True)
class Moments:
    """The first two moments of Phi."""

    mean_mm: np.ndarray
    second_mmmm: np.ndarray

    @classmethod
    def of_point(cls, phi_mm: np.ndarray) -> "Moments":
        """The moments of a Phi that is not random."""
        return cls(phi_mm, _outer(phi_mm, phi_mm))

    @property
    def covariance_mmmm(self) -> np.ndarray:
        """Cov(Phi_ab, Phi_cd)."""
        return self.second_mmmm - _outer(self.mean_mm, self.mean_mm)


def layers_moments(layers: Layers, phi_mm: np.ndarray, *, width: int, depth: int) -> Moments:
    """The moments of Phi after `depth` layers of `width`, from a fixed Phi."""
    now = Moments.of_point(phi_mm)
    for _ in range(depth):
        now = Moments(
            now.mean_mm + drift(layers, now.mean_mm) / width,
            _second_after_layer(layers, now.second_mmmm, width),
        )
    return now


def sde_moments(layers: Layers, phi_mm: np.ndarray, *, time: float) -> Moments:
    """The moments of the SDE at `time`, from a fixed Phi."""
    start = Moments.of_point(phi_mm)
    return Moments(
        _solve(lambda mean_mm: drift(layers, mean_mm), start.mean_mm, time),
        _solve(lambda second: second_change(layers, second), start.second_mmmm, time),
    )


def second_change(layers: Layers, second: np.ndarray) -> np.ndarray:
    """d/dt E[Phi_ab Phi_cd] for the SDE: its drift times Phi, twice, and its diffusion."""
    of_values, of_mixing = layers.diffusion
    drifted = _drift_of_first(layers, second)
    pairs = [_paired(layers, second, [pair]) for pair in combinations(range(4), 2)]
    within = drifted + _swapped(drifted)
    # The pairs (i, j) and (k, l) belong to one Phi each, and make up the drift.
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
    """E[(A S A^T)_ab (A S A^T)_cd]: the fourth moment of A by Isserlis' theorem, summed over all
    ways to pair some of the four factors A; those left unpaired are the identity."""
    pairs = list(combinations(range(4), 2))
    perfect = [[pairs[n], pairs[-1 - n]] for n in range(3)]
    scale = 1 / (width * layers.tokens)
    return (
        second
        + scale * sum(_paired(layers, second, [pair]) for pair in pairs)
        + scale**2 * sum(_paired(layers, second, two) for two in perfect)
    )


def _paired(layers: Layers, second: np.ndarray, pairs: list[tuple[int, int]]) -> np.ndarray:
    """The sum over ijkl of second_ijkl, with delta_ab C_a,ij for a pair of rows a and b of A that
    act on i and j, and delta_ia for an unpaired row."""
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
    """E[Phi_cd Phi_ab]: the two (m, m) halves exchanged."""
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
