"""Layers and SDE of Theorem 2.1, against laws that are known and a recursion with every weight."""

import math

import numpy as np
import pytest

from mixit_titan.analysis.collapse import collapse_rows
from mixit_titan.analysis.covariance_moments import layers_moments, sde_moments, second_change
from mixit_titan.analysis.covariance_sde import (
    Layers,
    drift,
    first_covariance,
    integrate_sde,
    simulate_layers,
)
from mixit_titan.analysis.sde import compared, slope
from mixit_titan.kernels.mixing import mixing_matrix
from mixit_titan.model.recipes import Recipe
from mixit_titan.model.shapes import Shape

PHI = np.array([[1.0, 0.4, -0.2], [0.4, 2.0, 0.3], [-0.2, 0.3, 0.7]])


def one_layer(skip: float, causal: bool, *, width: int, paths: int) -> np.ndarray:
    """Phi after one layer from PHI, with all of W_V and A drawn and nothing simplified."""
    rng, m = np.random.default_rng(5), len(PHI)
    orthonormal, _ = np.linalg.qr(rng.standard_normal((width, m)))
    h = orthonormal @ np.linalg.cholesky(PHI).T * math.sqrt(width)
    assert np.allclose(h.T @ h / width, PHI)
    w_v = rng.standard_normal((paths, width, width)) / math.sqrt(width)
    a = np.zeros((paths, m, m))
    for row in range(m):
        seen = row + 1 if causal else m
        w = rng.standard_normal((paths, seen)) / math.sqrt(width * m)
        a[:, row, :seen] = w - w.mean(1, keepdims=True)
    a += np.eye(m)
    after = skip * h + math.sqrt(1 - skip**2) * w_v @ h @ a.transpose(0, 2, 1)
    return after.transpose(0, 2, 1) @ after / width


def assert_moments(phi_Pmm: np.ndarray, mean: np.ndarray, second: np.ndarray) -> None:
    """Within five standard errors, which are small."""
    products = np.einsum("pab,pcd->pabcd", phi_Pmm, phi_Pmm)
    for samples, expected in ((phi_Pmm, mean), (products, second)):
        errors = samples.std(0) / math.sqrt(len(samples))
        assert np.all(np.abs(samples.mean(0) - expected) < 5 * errors)
        assert errors.max() < 0.06 * np.abs(expected).max()


@pytest.mark.parametrize(("skip", "causal"), [(0.0, False), (0.0, True), (0.6, True)])
def test_one_layer_has_the_exact_moments(skip: float, causal: bool) -> None:
    layers = Layers(tokens=3, causal=causal, skip=skip)
    exact = layers_moments(layers, PHI, width=6, depth=1)
    size = {"width": 6, "paths": 30_000}
    assert_moments(one_layer(skip, causal, **size), exact.mean_mm, exact.second_mmmm)
    simulated = simulate_layers(layers, PHI, depth=1, seed=0, **size)
    assert_moments(simulated, exact.mean_mm, exact.second_mmmm)


@pytest.mark.parametrize("skip", [0.0, 0.6])
def test_many_layers_have_the_exact_moments(skip: float) -> None:
    layers = Layers(tokens=3, causal=True, skip=skip)
    exact = layers_moments(layers, PHI, width=12, depth=4)
    simulated = simulate_layers(layers, PHI, width=12, depth=4, paths=30_000, seed=1)
    assert_moments(simulated, exact.mean_mm, exact.second_mmmm)


@pytest.mark.parametrize("causal", [False, True])
def test_the_noise_is_that_of_the_mixing_matrices(causal: bool) -> None:
    """The covariance of a row of A, drawn as a model draws it, is C / (n m)."""
    m, width = 3, 16
    shape = Shape(width=width, layers=1, heads=1, hidden=1, vocab=1, seq_len=m)
    spec = Recipe(causal=causal).matrix_spec(0, shape)
    a = mixing_matrix(spec, 0, range(4000)).numpy()
    for row, expected in enumerate(Layers(tokens=m, causal=causal).projections_mmm):
        found = np.cov(a[:, row].T) * width * m
        assert np.abs(found - expected).max() < 0.1
        assert np.linalg.matrix_rank(expected) == (row if causal else m - 1)


def test_the_drift_is_the_theorems() -> None:
    found = drift(Layers(tokens=3, causal=False), PHI)
    assert np.allclose(found, (np.trace(PHI) / 3 - PHI.mean()) * np.eye(3))
    causal = drift(Layers(tokens=3, causal=True), PHI)
    two = PHI[:2, :2]
    assert np.isclose(causal[1, 1], 2 / 3 * (np.trace(two) / 2 - two.mean()))
    assert causal[0, 0] == 0 and np.isclose(causal[2, 2], found[2, 2])


def test_the_second_moments_change_by_drift_and_diffusion() -> None:
    """At a point: d(Phi_ab Phi_cd) = drift_ab Phi_cd + Phi_ab drift_cd + Sigma_v + Sigma_M."""
    m, phi = 3, PHI
    b = (np.trace(phi) / m - phi.mean()) * np.eye(m)
    k = phi @ (np.eye(m) - np.ones((m, m)) / m) @ phi / m
    expected = np.empty((m,) * 4)
    for i, j, p, q in np.ndindex(*expected.shape):
        values = phi[i, p] * phi[j, q] + phi[i, q] * phi[j, p]
        mixing = (j == q) * k[i, p] + (j == p) * k[i, q] + (i == q) * k[j, p] + (i == p) * k[j, q]
        expected[i, j, p, q] = b[i, j] * phi[p, q] + phi[i, j] * b[p, q] + values + mixing
    second = np.einsum("ab,cd->abcd", phi, phi)
    assert np.allclose(second_change(Layers(tokens=m, causal=False), second), expected)


def test_one_token_is_a_geometric_brownian_motion() -> None:
    """A token that sees itself alone is not mixed: dPhi = sqrt(2) Phi dB."""
    layers, one, time = Layers(tokens=1, causal=True), np.ones((1, 1)), 0.4
    exact = sde_moments(layers, one, time=time)
    assert np.isclose(exact.mean_mm, 1) and np.isclose(exact.second_mmmm, math.exp(2 * time))
    deep = layers_moments(layers, one, width=10, depth=4)
    assert np.isclose(deep.second_mmmm, (1 + 2 / 10) ** 4)
    phi = integrate_sde(layers, one, time=time, steps=100, paths=20_000, seed=0).ravel()
    assert abs(phi.mean() - 1) < 0.03
    assert abs(np.log(phi).mean() + time) < 0.03 and abs(np.log(phi).var() - 2 * time) < 0.03


@pytest.mark.parametrize("skip", [0.0, 0.7])
def test_the_integrator_has_the_moments_of_the_sde(skip: float) -> None:
    layers = Layers(tokens=3, causal=True, skip=skip)
    exact = sde_moments(layers, PHI, time=0.2)
    phi = integrate_sde(layers, PHI, time=0.2, steps=40, paths=12_000, seed=3)
    assert_moments(phi, exact.mean_mm, exact.second_mmmm)


def test_the_mean_grows_as_the_linear_equation_says() -> None:
    """u = Tr(Phi) / m - mean(Phi) has du = (1 - 1 / m) u dt; what is beside the diagonal stays."""
    mean = sde_moments(Layers(tokens=3, causal=False), PHI, time=0.7).mean_mm
    u, grown = np.trace(PHI) / 3 - PHI.mean(), np.trace(mean) / 3 - mean.mean()
    assert np.isclose(grown, u * math.exp(0.7 * 2 / 3))
    assert np.allclose(mean - np.diag(np.diag(mean)), PHI - np.diag(np.diag(PHI)))


@pytest.mark.parametrize("skip", [0.0, 0.6])
def test_the_difference_is_inverse_to_the_width(skip: float) -> None:
    layers, phi = Layers(tokens=3, causal=True, skip=skip), first_covariance(3)
    limit = sde_moments(layers, phi, time=0.25)
    widths = (32, 64, 128)
    found = [layers_moments(layers, phi, width=n, depth=n // 4) for n in widths]
    for name in ("mean_mm", "covariance_mmmm"):
        distances = [np.linalg.norm(getattr(f, name) - getattr(limit, name)) for f in found]
        assert -1.02 < slope(widths, distances) < -0.95


def test_a_simulation_of_the_limit_differs_by_its_errors() -> None:
    layers, phi = Layers(tokens=3, causal=False), first_covariance(3)
    limit = sde_moments(layers, phi, time=0.1)
    right = compared(integrate_sde(layers, phi, time=0.1, steps=40, paths=5000, seed=0), limit)
    wrong = compared(simulate_layers(layers, phi, width=10, depth=4, paths=5000, seed=0), limit)
    for what in ("mean", "covariance"):
        assert right[f"{what}_difference"] < 3 * right[f"{what}_error"]
    assert wrong["covariance_difference"] > 5 * wrong["covariance_error"]


def test_softmax_collapses_and_mixing_does_not() -> None:
    last = {
        row["mixer"]: row for row in collapse_rows(width=32, depth=16, seed=0) if row["layer"] == 16
    }
    for mixer in ("softmax", "uniform"):
        assert last[mixer]["effective_rank"] < 1.01 and last[mixer]["cosine"] > 0.999
    for mixer in ("identity", "mixit"):
        assert last[mixer]["effective_rank"] > 3 and abs(last[mixer]["cosine"]) < 0.2
