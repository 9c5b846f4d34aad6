"""A power law with its uncertainty, from a residual bootstrap.

The residuals of log L are resampled with replacement at the same sizes, and the law is refitted to
each resample. Residuals underestimate the noise because P parameters were fitted to them, which a
factor of sqrt(n / (n - P)) corrects, and few runs determine their own spread poorly, for which
Student's t takes the place of the normal quantile. Intervals are at 95%.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mixit_titan.intervals import NORMAL, student
from mixit_titan.ladder.power_law import PowerLaw, fit, refit

DRAWS = 300
_SPARE = 2
"""Runs needed beyond the number of parameters, so that the noise can be estimated."""

Interval = tuple[float, float]


class TooFew(ValueError):
    """There are too few runs for a fit; the message says how many are needed."""


@dataclass(frozen=True)
class Fit:
    """A fitted power law and its bootstrap draws."""

    law: PowerLaw
    draws: tuple[PowerLaw, ...]
    residuals: np.ndarray
    """Residuals of log L, scaled to the noise of a new run."""
    degrees: int

    def interval(self, figure: Callable[[PowerLaw], float]) -> Interval:
        """The interval of any quantity that is computed from a law."""
        found = np.array([figure(law) for law in self.draws])
        return spread(figure(self.law), found, self.degrees)

    def prediction(self, *sizes: float) -> Interval:
        """The interval of the loss of a new run at these sizes: fit uncertainty and run noise."""
        rng = np.random.default_rng(0)
        noise = rng.choice(self.residuals, len(self.draws))
        found = np.log([law.loss(*sizes) for law in self.draws]) + noise
        low, high = spread(float(np.log(self.law.loss(*sizes))), found, self.degrees)
        return float(np.exp(low)), float(np.exp(high))

    @cached_property
    def error(self) -> float:
        """The typical residual of a run, relative to its loss."""
        return float(np.sqrt(np.mean(self.residuals**2)))


def fit_with_draws(
    sizes_nK: np.ndarray, loss_n: np.ndarray, *, draws: int = DRAWS, seed: int = 0
) -> Fit:
    """Fit a law with bootstrap draws; TooFew if the runs or their sizes do not determine it."""
    check_enough(sizes_nK)
    law, runs = fit(sizes_nK, loss_n), len(loss_n)
    degrees = runs - _parameters(sizes_nK)
    fitted_n = law.loss(*sizes_nK.T)
    residuals_n = np.log(loss_n / fitted_n)
    residuals_n = (residuals_n - residuals_n.mean()) * np.sqrt(runs / degrees)
    noise_Bn = np.random.default_rng(seed).choice(residuals_n, (draws, runs))
    laws = refit(sizes_nK, fitted_n * np.exp(noise_Bn), near=law)
    return Fit(law, tuple(laws), residuals_n, degrees)


def spread(center: float, found: np.ndarray, degrees: int) -> Interval:
    """The interval of a quantity from its draws, widened for few degrees of freedom."""
    low, high = np.percentile(found, [2.5, 97.5])
    wider = student(degrees) / NORMAL
    return float(center + wider * (low - center)), float(center + wider * (high - center))


def check_enough(sizes_nK: np.ndarray) -> None:
    """Raise TooFew if there are too few runs, or too few different sizes, for a fit."""
    runs, needed = len(sizes_nK), _parameters(sizes_nK) + _SPARE
    law = "L(C)" if sizes_nK.shape[1] == 1 else "L(N, D)"
    if runs < needed:
        raise TooFew(f"fitting {law} needs at least {needed} runs, and there are {runs}")
    for what, column in zip(("C",) if law == "L(C)" else ("N", "D"), sizes_nK.T, strict=True):
        different = len(np.unique(column))
        if different < 3:
            raise TooFew(f"fitting {law} needs 3 values of {what}, and there are {different}")


def _parameters(sizes_nK: np.ndarray) -> int:
    return 1 + 2 * sizes_nK.shape[1]
