"""The best size for a budget: of all depths of the dial, that of the lowest L(N, C / FLOPs per
token). No approximation of FLOPs is used, such as 6 N D, which small models are far from."""

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
"""How many times deeper than the ladder the best size is looked for."""


@dataclass(frozen=True)
class BestSize:
    budget: float
    depth: int
    depths: tuple[int, int]
    """The interval, in steps of the depths that the stack can have."""
    params: int
    tokens: float
    loss: float
    at_edge: bool
    """Whether it is the deepest or the least deep that was looked at."""


def best_sizes(
    fit: Fit, scale: Scale, stack: str, vocab: int, budgets: Sequence[float]
) -> list[BestSize]:
    depths, params, costs = _candidates(scale, stack, vocab)
    return [_best(fit, depths, params, costs, budget) for budget in budgets]


def _candidates(scale: Scale, stack: str, vocab: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Depths that the stack fills, and N and FLOPs per token of each."""
    rows = []
    for depth in range(1, _DEEPER * max(scale.depths) + 1):
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
