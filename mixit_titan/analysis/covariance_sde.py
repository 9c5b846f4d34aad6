"""The covariance of tokens in random layers, and the SDE that it converges to (Theorem 2.1).

h is (n, m): width n, one column for each of m tokens. A layer at initialization is

    h' = lambda h + gamma W_V h A^T,   gamma^2 = 1 - lambda^2,   W_V ~ N(0, 1/n)
    A = I + (W - mean(W)),  W ~ N(0, 1/(n m)),  the mean of a row over its visible tokens

lambda = 0 is the theorem's recursion. Phi = h^T h / n is a Markov chain with time t = layer / n.

**Derivation.** Row b of M = sqrt(n) (A - I) is N(0, C_b / m): C_b projects onto the tokens
visible to b, minus their mean. Given Phi, S = h^T W_V^T W_V h / n is Wishart(Phi, n) / n, so

    E[S] = Phi      Cov(S_ab, S_cd) = (Phi_ac Phi_bd + Phi_ad Phi_bc) / n        = Sigma_v / n

A S A^T = S + (M S + S M^T) / sqrt(n) + M S M^T / n. The middle term has mean zero and, to leading
order, covariance Sigma_M / n with K^b = Phi C_b Phi / m:

    Sigma_M[ab, cd] = delta_bd K^b_ac + delta_bc K^b_ad + delta_ad K^a_bc + delta_ac K^a_bd

The last term is the drift: E[M S M^T]_ab = delta_ab Tr(C_a Phi) / m. Without a causal mask,
C = I - 1 1^T / m and Tr(C Phi) / m = Tr(Phi) / m - mean(Phi), on the diagonal only: the theorem's
drift. With the mask, token k has k / m times the same expression for the leading k x k block.

With a skip connection, the cross term lambda gamma (h^T W_V h A^T + transpose) / n has mean zero,
covariance 2 lambda^2 gamma^2 Sigma_v / n, and none with S, which is even in W_V. Together:

    dPhi = gamma^2 drift dt + (gamma^2 (1 + lambda^2) Sigma_v + gamma^4 Sigma_M)^(1/2) dB

Shapes: P paths, m tokens.
"""

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Random layers of one kind, at any width."""

    tokens: int
    causal: bool
    skip: float = 0.0
    """lambda, at least 0 and below 1."""

    @property
    def branch(self) -> float:
        """gamma^2."""
        return 1 - self.skip**2

    @property
    def diffusion(self) -> tuple[float, float]:
        """The factors of Sigma_v and Sigma_M."""
        return self.branch * (1 + self.skip**2), self.branch**2

    @property
    def visible_mm(self) -> np.ndarray:
        """1 where a token (column) is visible to another (row)."""
        ones = np.ones((self.tokens, self.tokens))
        return np.tril(ones) if self.causal else ones

    @property
    def projections_mmm(self) -> np.ndarray:
        """C_b for each token b."""
        visible = self.visible_mm
        means = visible[:, :, None] * visible[:, None] / visible.sum(1)[:, None, None]
        return visible[:, :, None] * np.eye(self.tokens) - means


def first_covariance(tokens: int) -> np.ndarray:
    """Phi before the first layer: unit tokens whose correlation falls with their distance."""
    places = np.arange(tokens)
    return 0.5 ** np.abs(places - places[:, None])


def drift(layers: Layers, phi_Pmm: np.ndarray) -> np.ndarray:
    """gamma^2 delta_ab Tr(C_a Phi) / m."""
    traces_Pm = np.einsum("aij,...ij->...a", layers.projections_mmm, phi_Pmm)
    return layers.branch / layers.tokens * traces_Pm[..., None] * np.eye(layers.tokens)


def simulate_layers(
    layers: Layers, phi_mm: np.ndarray, *, width: int, depth: int, paths: int, seed: int
) -> np.ndarray:
    """Samples of Phi after `depth` layers of `width`: (paths, m, m), exact in distribution for any
    width of at least twice the number of tokens.

    W_V is rotation invariant: with h = Q R and orthonormal columns in Q, W_V h is G R / sqrt(n),
    where G has m standard normal columns. The part of G in the span of Q interacts with the skip
    connection; of the rest only the Gram matrix matters, which is Wishart with n - m degrees of
    freedom.
    """
    rng, m = np.random.default_rng(seed), layers.tokens
    phi_Pmm = np.broadcast_to(phi_mm, (paths, m, m))
    for _ in range(depth):
        r_Pmm = _root(phi_Pmm)
        mixed_Pmm = r_Pmm + r_Pmm @ _transposed(_noise(layers, rng, paths)) / math.sqrt(width)
        mixed_Pmm *= math.sqrt(layers.branch / width)
        within_Pmm = layers.skip * r_Pmm + rng.standard_normal((paths, m, m)) @ mixed_Pmm
        beside_Pmm = _wishart_root(rng, paths, m, width - m) @ mixed_Pmm
        phi_Pmm = _gram(within_Pmm) + _gram(beside_Pmm)
    return phi_Pmm


def integrate_sde(
    layers: Layers, phi_mm: np.ndarray, *, time: float, steps: int, paths: int, seed: int
) -> np.ndarray:
    """Samples of the SDE at `time`, by the Euler-Maruyama method: (paths, m, m).

    An Euler step on Phi itself soon leaves the positive definite matrices, so it is taken on a
    factor, Phi = R^T R, with v and u the factors of Sigma_v and Sigma_M:

        dR = -(v m / 4) R dt + sqrt(v / 2) dB R + sqrt(u) R dM^T

    By Ito's formula d(R^T R) has the diffusion of the SDE; the first term cancels the contribution
    of dB^T dB, and dM Phi dM^T contributes u times the theorem's drift, of which gamma^2 - u is
    still missing.
    """
    rng, m = np.random.default_rng(seed), layers.tokens
    step, (v, u) = time / steps, layers.diffusion
    phi_Pmm = np.broadcast_to(phi_mm, (paths, m, m))
    for _ in range(steps):
        r_Pmm = _root(phi_Pmm)
        values_Pmm = rng.standard_normal((paths, m, m)) @ r_Pmm * math.sqrt(step * v / 2)
        mixing_Pmm = r_Pmm @ _transposed(_noise(layers, rng, paths)) * math.sqrt(step * u)
        missing_Pmm = (1 - u / layers.branch) * drift(layers, phi_Pmm)
        r_Pmm = (1 - step * v * m / 4) * r_Pmm + values_Pmm + mixing_Pmm
        phi_Pmm = _gram(r_Pmm) + step * missing_Pmm
    return phi_Pmm


def _noise(layers: Layers, rng: np.random.Generator, paths: int) -> np.ndarray:
    """M = sqrt(n) (A - I): row b is N(0, C_b / m)."""
    m, visible = layers.tokens, layers.visible_mm
    w_Pmm = rng.standard_normal((paths, m, m)) * visible / math.sqrt(m)
    return w_Pmm - visible * (w_Pmm.sum(-1) / visible.sum(-1))[..., None]


def _wishart_root(rng: np.random.Generator, paths: int, m: int, degrees: int) -> np.ndarray:
    """T, upper triangular, with T^T T ~ Wishart(I, degrees): Bartlett's decomposition."""
    t_Pmm = np.triu(rng.standard_normal((paths, m, m)), 1)
    diagonal = np.arange(m)
    t_Pmm[:, diagonal, diagonal] = np.sqrt(rng.chisquare(degrees - diagonal, (paths, m)))
    return t_Pmm


def _root(phi_Pmm: np.ndarray) -> np.ndarray:
    """R with R^T R = Phi."""
    return _transposed(np.linalg.cholesky(phi_Pmm))


def _gram(r_Pmm: np.ndarray) -> np.ndarray:
    return _transposed(r_Pmm) @ r_Pmm


def _transposed(x_Pmm: np.ndarray) -> np.ndarray:
    return np.swapaxes(x_Pmm, -1, -2)
