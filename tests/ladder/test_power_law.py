"""Fits, against surfaces whose constants are known and against torch's LBFGS."""

import numpy as np
import pytest
import torch

from mixit_titan.ladder import power_law
from mixit_titan.ladder.power_law import PowerLaw, fit, minimize

SIZES = np.array([3e4, 9e4, 2e5, 4e5, 7e5])
PLACES = np.array(
    [(n, 16 * n) for n in SIZES]
    + [(n, c / n) for c in (3e10, 1e11, 4e11) for n in SIZES if n < c / n < 300 * n]
)


@pytest.mark.parametrize(
    ("floor", "scales", "exponents"),
    [
        (0.9, (30.0, 60.0), (0.38, 0.33)),
        (1.69, (406.4, 410.7), (0.34, 0.28)),  # of Hoffmann et al., 2022
        (0.4, (5.0, 800.0), (0.2, 0.6)),
    ],
)
def test_a_known_surface_is_recovered(floor: float, scales: tuple, exponents: tuple) -> None:
    n, d = PLACES.T
    loss = floor + scales[0] / n ** exponents[0] + scales[1] / d ** exponents[1]
    found = fit(PLACES, loss)
    assert found.floor == pytest.approx(floor, rel=0.02)
    assert found.scales == pytest.approx(scales, rel=0.02)
    assert found.exponents == pytest.approx(exponents, rel=0.02)


def test_a_known_curve_is_recovered() -> None:
    flops = np.geomspace(1e11, 1e14, 7)
    found = fit(flops[:, None], 1.1 + 50.0 / flops**0.15)
    assert (found.floor, *found.scales, *found.exponents) == pytest.approx(
        (1.1, 50, 0.15), rel=0.02
    )


def test_one_wild_run_moves_the_exponents_little() -> None:
    n, d = PLACES.T
    loss = 0.9 + 30 / n**0.38 + 60 / d**0.33
    loss[3] *= 1.1
    assert fit(PLACES, loss).exponents == pytest.approx((0.38, 0.33), rel=0.02)


def test_the_minimum_is_that_of_lbfgs() -> None:
    """From the same place, on noisy losses: torch's optimizer, with its own gradients."""
    rng = np.random.default_rng(0)
    n, d = PLACES.T
    y = np.log(0.9 + 30 / n**0.38 + 60 / d**0.33) + 0.01 * rng.standard_normal(len(n))
    x = np.log(PLACES) - np.log(PLACES).mean(0)
    start = np.array([np.log(0.8), np.log(0.4), 0.3, np.log(0.4), 0.3])
    _, cost = minimize(x, y[None], start[None])
    theta = torch.tensor(start, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [theta],
        max_iter=500,
        tolerance_grad=1e-12,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )
    x_nK, y_n = torch.tensor(x), torch.tensor(y)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        terms = [
            theta[0].expand(len(y)),
            *(theta[1 + 2 * k] - theta[2 + 2 * k] * x_nK[:, k] for k in (0, 1)),
        ]
        residual = torch.logsumexp(torch.stack(terms), 0)
        huber = torch.nn.functional.huber_loss(
            residual, y_n, delta=power_law.HUBER, reduction="sum"
        )
        huber.backward()
        return huber

    for _ in range(3):
        optimizer.step(closure)
    found = float(closure().detach())
    assert float(cost[0]) == pytest.approx(found, rel=1e-4)


def test_a_law_at_hand() -> None:
    assert PowerLaw(1.0, (8.0, 9.0), (1.0, 0.5)).loss(4.0, 9.0) == pytest.approx(1 + 2 + 3)
