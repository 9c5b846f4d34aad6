"""Samples the next token.

The argmax of logit / temperature + Gumbel noise is a sample of the softmax. The noise depends on
nothing but (seed, row, position, token), so that a row gives the same tokens whatever is beside it,
and with or without a cache.

Shapes: B rows, V vocabulary.
"""

from dataclasses import dataclass

import torch

from mixit_titan.errors import ConfigError
from mixit_titan.kernels.philox import WORD, philox


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are sampled from logits."""

    temperature: float
    """0: always the most likely token."""
    top_p: float
    """Sample only from the most likely tokens that together have this probability."""
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise ConfigError(f"--temperature is {self.temperature}: it must be 0 or above")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"--top-p is {self.top_p}: it must be above 0 and at most 1")
        if self.seed < 0:
            raise ConfigError(f"--seed is {self.seed}: it must be at least 0")

    def choose(self, logits_BV: torch.Tensor, position: int) -> torch.Tensor:
        """The tokens at `position`, (B,)."""
        if self.temperature == 0:
            return logits_BV.argmax(-1)
        logits_BV = logits_BV.double() / self.temperature
        if self.top_p < 1:
            logits_BV = logits_BV.masked_fill(unlikely(logits_BV, self.top_p), -torch.inf)
        return (logits_BV + self._gumbel(logits_BV, position)).argmax(-1)

    def _gumbel(self, logits_BV: torch.Tensor, position: int) -> torch.Tensor:
        rows, tokens = (torch.arange(n, device=logits_BV.device) for n in logits_BV.shape)
        # The last word separates these draws from those of a mixing matrix, where it is a layer.
        word_BV = philox(self.seed, tokens, position, rows.unsqueeze(1), WORD)[0]
        return -torch.log(-torch.log((word_BV.double() + 0.5) / 2**32))


def unlikely(logits_BV: torch.Tensor, top_p: float) -> torch.Tensor:
    """Whether the more likely tokens already have the probability `top_p`, for each token."""
    p_BV, order_BV = logits_BV.softmax(-1).sort(dim=-1, descending=True, stable=True)
    return torch.empty_like(order_BV, dtype=torch.bool).scatter_(
        -1, order_BV, p_BV.cumsum(-1) - p_BV >= top_p
    )
