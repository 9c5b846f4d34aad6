"""Power laws, fitted to losses:

    L(N, D) = E + A / N^alpha + B / D^beta        a surface: two terms
    L(C)    = E + A / C^gamma                     a curve: one term

The Huber loss of the residuals of log L is minimized from many starting points at once, with
Levenberg-Marquardt steps on reweighted least squares. The log of a sum of powers has a simple
Jacobian, the share of each term in the sum. All starting points and all bootstrap draws run as one
batch.

Shapes: S fits, n runs, K terms, P = 1 + 2K parameters: log E, then log A_k and exponent_k.
"""

import itertools
from dataclasses import dataclass

import numpy as np

HUBER = 0.005
"""The size of a residual of log L, which is about a relative error, beyond which it counts
linearly."""
_STEPS = 120
_IDLE = 5
"""The number of steps without any improvement after which the fit stops."""
EXPONENTS = (0.01, 3.0)
"""The range of exponents."""
_LEAST_FLOOR = 1e-4
"""The smallest E, as a share of the lowest loss."""
_STARTS = {"floor": (0.2, 0.5, 0.8, 0.95), "exponent": (0.1, 0.3, 0.6, 1.0)}


@dataclass(frozen=True)
class PowerLaw:
    """L(N, D) or L(C)."""

    floor: float
    """E, the irreducible loss."""
    scales: tuple[float, ...]
    exponents: tuple[float, ...]

    def loss(self, *sizes: float | np.ndarray) -> float | np.ndarray:
        """The loss at one size per term: at N and D, or at C."""
        terms = zip(sizes, self.scales, self.exponents, strict=True)
        return self.floor + sum(scale * size**-exponent for size, scale, exponent in terms)


def fit(sizes_nK: np.ndarray, loss_n: np.ndarray) -> PowerLaw:
    """The best fit over all starting points."""
    return refit(sizes_nK, loss_n[None])[0]


def refit(
    sizes_nK: np.ndarray, loss_Bn: np.ndarray, near: PowerLaw | None = None
) -> list[PowerLaw]:
    """Fit one law to each row of losses at the same sizes. `near`: a law to start from, with the
    corners of the grid of starting points instead of all of it."""
    x_nK, center_K = _centered(sizes_nK)
    y_Bn = np.log(loss_Bn)
    starts_SP = _starts(x_nK.shape[1], loss_Bn.mean(0), corners=near is not None)
    if near is not None:
        starts_SP = np.concatenate([_near(near, center_K), starts_SP])
    batch, count = len(y_Bn), len(starts_SP)
    theta, cost = minimize(x_nK, np.repeat(y_Bn, count, 0), np.tile(starts_SP, (batch, 1)))
    best_B = cost.reshape(batch, count).argmin(1)
    best_BP = theta.reshape(batch, count, -1)[np.arange(batch), best_B]
    return [_law(theta_P, center_K) for theta_P in best_BP]


def minimize(
    x_nK: np.ndarray, y_Sn: np.ndarray, theta_SP: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The parameters of each fit, and its Huber loss; `x` are log sizes, `y` log losses."""
    low_P, high_P = _bounds(x_nK.shape[1], y_Sn)
    damping_S = np.full(len(theta_SP), 1e-2)
    predicted_Sn, jacobian_SnP = _predict(x_nK, theta_SP)
    cost_S = _huber(predicted_Sn - y_Sn)
    idle = 0
    for _ in range(_STEPS):
        residual_Sn = predicted_Sn - y_Sn
        weight_Sn = np.minimum(1, HUBER / np.maximum(np.abs(residual_Sn), 1e-300))
        weighted_SPn = (jacobian_SnP * weight_Sn[..., None]).swapaxes(1, 2)
        squares_SPP = weighted_SPn @ jacobian_SnP
        diagonal_SP = np.einsum("spp->sp", squares_SPP)
        squares_SPP += (
            np.eye(theta_SP.shape[1]) * (damping_S[:, None] * diagonal_SP + 1e-12)[:, :, None]
        )
        slope_SP1 = weighted_SPn @ residual_Sn[..., None]
        step_SP = np.linalg.solve(squares_SPP, slope_SP1)[..., 0]
        tried_SP = np.clip(theta_SP - step_SP, low_P, high_P)
        tried = _predict(x_nK, tried_SP)
        tried_cost_S = _huber(tried[0] - y_Sn)
        better_S = tried_cost_S <= cost_S
        idle = 0 if np.any(tried_cost_S < cost_S * (1 - 1e-7)) else idle + 1
        if idle == _IDLE:
            break
        damping_S = np.clip(np.where(better_S, damping_S / 3, damping_S * 4), 1e-9, 1e9)
        theta_SP = np.where(better_S[:, None], tried_SP, theta_SP)
        cost_S = np.where(better_S, tried_cost_S, cost_S)
        predicted_Sn = np.where(better_S[:, None], tried[0], predicted_Sn)
        jacobian_SnP = np.where(better_S[:, None, None], tried[1], jacobian_SnP)
    return theta_SP, cost_S


def _predict(x_nK: np.ndarray, theta_SP: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log L, a log-sum-exp, and its derivatives: the share of each term in the sum, and for an
    exponent this share times minus the log size."""
    floor_S, scale_SK, exponent_SK = theta_SP[:, 0], theta_SP[:, 1::2], theta_SP[:, 2::2]
    terms_SnK = scale_SK[:, None] - exponent_SK[:, None] * x_nK
    floor_Sn1 = np.broadcast_to(floor_S[:, None, None], (*terms_SnK.shape[:2], 1))
    every_SnT = np.concatenate([floor_Sn1, terms_SnK], -1)
    top_Sn1 = every_SnT.max(-1, keepdims=True)
    share_SnT = np.exp(every_SnT - top_Sn1)
    total_Sn1 = share_SnT.sum(-1, keepdims=True)
    share_SnT /= total_Sn1
    jacobian_SnP = np.empty((*terms_SnK.shape[:2], theta_SP.shape[1]))
    jacobian_SnP[..., 0] = share_SnT[..., 0]
    jacobian_SnP[..., 1::2] = share_SnT[..., 1:]
    jacobian_SnP[..., 2::2] = -share_SnT[..., 1:] * x_nK
    return (top_Sn1 + np.log(total_Sn1))[..., 0], jacobian_SnP


def _huber(residual_Sn: np.ndarray) -> np.ndarray:
    size_Sn = np.abs(residual_Sn)
    squared = 0.5 * size_Sn**2
    return np.where(size_Sn <= HUBER, squared, HUBER * (size_Sn - 0.5 * HUBER)).sum(-1)


def _bounds(terms: int, y_Sn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    floor = (y_Sn.min() + np.log(_LEAST_FLOOR), y_Sn.max())
    pairs = [floor, *[(-50.0, 50.0), EXPONENTS] * terms]
    return np.array([low for low, _ in pairs]), np.array([high for _, high in pairs])


def _starts(terms: int, loss_n: np.ndarray, *, corners: bool) -> np.ndarray:
    """All combinations of floors and exponents, or of the smallest and largest of them; the terms
    share the rest of the loss equally."""
    floors, powers = ((values[0], values[-1]) if corners else values for values in _STARTS.values())
    rows = []
    for share, *exponents in itertools.product(floors, *[powers] * terms):
        floor = share * loss_n.min()
        scale = np.log((loss_n.mean() - floor) / terms)
        rows.append([np.log(floor), *(v for each in exponents for v in (scale, each))])
    return np.array(rows)


def _near(law: PowerLaw, center_K: np.ndarray) -> np.ndarray:
    scales = np.log(law.scales) - np.array(law.exponents) * center_K
    theta = [np.log(law.floor), *np.ravel(np.column_stack([scales, law.exponents]))]
    return np.array([theta])


def _centered(sizes_nK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centered log sizes, which decorrelate a scale from its exponent."""
    logs_nK = np.log(sizes_nK)
    return logs_nK - logs_nK.mean(0), logs_nK.mean(0)


def _law(theta_P: np.ndarray, center_K: np.ndarray) -> PowerLaw:
    scales_K = np.exp(theta_P[1::2] + theta_P[2::2] * center_K)
    return PowerLaw(
        float(np.exp(theta_P[0])),
        tuple(map(float, scales_K)),
        tuple(map(float, theta_P[2::2])),
    )
