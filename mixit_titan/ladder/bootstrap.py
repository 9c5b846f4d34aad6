"""A power law with what its runs leave open: the law of many ladders that might have been.

The residuals of log L are drawn again, with replacement, at the same sizes, and the law is fitted
again to each draw. Residuals are too small by the parameters that were fitted to them, and few runs
say little about their own spread: the first is undone by sqrt(n / (n - P)), the second by Student's
t in place of a normal quantile. Intervals are at 95%.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mixit_titan.intervals import NORMAL, student
from mixit_titan.ladder.power_law import PowerLaw, fit, refit

DRAWS = 300
_SPARE = 2
"""Runs beyond as many as there are parameters, without which nothing is known of the noise."""

Interval = tuple[float, float]


class TooFew(ValueError):
    """A sentence that says how many are needed."""


@dataclass(frozen=True)
class Fit:
    law: PowerLaw
    draws: tuple[PowerLaw, ...]
    residuals: np.ndarray
    """Of log L, as large as those of new runs."""
    degrees: int

    def interval(self, figure: Callable[[PowerLaw], float]) -> Interval:
        """Of anything that a law says."""
        found = np.array([figure(law) for law in self.draws])
        return spread(figure(self.law), found, self.degrees)

    def prediction(self, *sizes: float) -> Interval:
        """Of one more run at those sizes: what is open of the law, and the noise of a run."""
        rng = np.random.default_rng(0)
        noise = rng.choice(self.residuals, len(self.draws))
        found = np.log([law.loss(*sizes) for law in self.draws]) + noise
        low, high = spread(float(np.log(self.law.loss(*sizes))), found, self.degrees)
        return float(np.exp(low)), float(np.exp(high))

    @cached_property
    def error(self) -> float:
        """The typical residual of a run, as a share of its loss."""
        return float(np.sqrt(np.mean(self.residuals**2)))


def fit_with_draws(
    sizes_nK: np.ndarray, loss_n: np.ndarray, *, draws: int = DRAWS, seed: int = 0
) -> Fit:
    """TooFew where the runs, or the different sizes among them, do not determine a law."""
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
    """The interval of a figure from its draws, wider where there are few degrees of freedom."""
    low, high = np.percentile(found, [2.5, 97.5])
    wider = student(degrees) / NORMAL
    return float(center + wider * (low - center)), float(center + wider * (high - center))


def check_enough(sizes_nK: np.ndarray) -> None:
    runs, needed = len(sizes_nK), _parameters(sizes_nK) + _SPARE
    law = "L(C)" if sizes_nK.shape[1] == 1 else "L(N, D)"
    if runs < needed:
        raise TooFew(f"a fit of {law} needs at least {needed} runs, and there are {runs}")
    for what, column in zip(("C",) if law == "L(C)" else ("N", "D"), sizes_nK.T, strict=True):
        different = len(np.unique(column))
        if different < 3:
            raise TooFew(f"a fit of {law} needs 3 different {what}, and there are {different}")


def _parameters(sizes_nK: np.ndarray) -> int:
    return 1 + 2 * sizes_nK.shape[1]
