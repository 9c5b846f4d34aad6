"""The best size for a budget: among all depths of the dial, the one with the lowest
L(N, C / FLOPs per token). FLOPs are counted, not approximated by 6 N D, which is far off for small
models."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mixit_titan.errors import ConfigError
from mixit_titan.ladder.bootstrap import Fit
from mixit_titan.ladder.dial import flops_per_token, layer_parameters
from mixit_titan.ladder.grid import sized
from mixit_titan.ladder.power_law import PowerLaw
from mixit_titan.ladder.scales import Scale

_DEEPER = 3
"""The search goes from the ladder's smallest depth to this multiple of its largest."""


@dataclass(frozen=True)
class BestSize:
    """The size of the lowest fitted loss for a budget of FLOPs."""

    budget: float
    depth: int
    depths: tuple[int, int]
    """The 95% interval, in steps of the depths that the stack can fill."""
    params: int
    tokens: float
    loss: float
    at_edge: bool
    """Whether it is the deepest or the shallowest candidate."""


def best_sizes(
    fit: Fit, scale: Scale, stack: str, vocab: int, budgets: Sequence[float]
) -> list[BestSize]:
    """The best size of a stack for each budget."""
    depths, params, costs = _candidates(scale, stack, vocab)
    return [_best(fit, depths, params, costs, budget) for budget in budgets]


def _candidates(scale: Scale, stack: str, vocab: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The depths that the stack can fill, with N and FLOPs per token of each."""
    rows = []
    for depth in range(min(scale.depths), _DEEPER * max(scale.depths) + 1):
        try:
            shape, layers = sized(scale, stack, depth, vocab)
            rows.append((depth, layer_parameters(shape, layers), flops_per_token(shape, layers)))
        except ConfigError:
            continue
    return tuple(np.array(column) for column in zip(*rows, strict=True))


def _best(
    fit: Fit, depths: np.ndarray, params: np.ndarray, costs: np.ndarray, budget: float
) -> BestSize:
    def place(law: PowerLaw) -> int:
        return int(np.argmin(law.loss(params.astype(float), budget / costs)))

    at = place(fit.law)
    low, high = np.percentile([place(law) for law in fit.draws], [2.5, 97.5]).round().astype(int)
    return BestSize(
        budget=budget,
        depth=int(depths[at]),
        depths=(int(depths[low]), int(depths[high])),
        params=int(params[at]),
        tokens=float(budget / costs[at]),
        loss=float(fit.law.loss(float(params[at]), budget / costs[at])),
        at_edge=at in (0, len(depths) - 1),
    )
