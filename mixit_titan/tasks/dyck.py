"""Dyck-1: is a sequence of parentheses balanced?

    question  (()
    answer    no

Half of the examples are balanced, all balanced sequences being equally likely. The others are near
misses: a balanced sequence in which one parenthesis was flipped, or two were swapped, so that it is
no longer balanced. The model gets a start token, the parentheses, and a query token.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.errors import ConfigError
from mixit_titan.tasks.examples import Examples
from mixit_titan.tasks.task import Task

OPEN, CLOSE, START, ASK, NO, YES = range(6)
_SWAPS = 8  # attempts to unbalance a sequence by a swap, before a flip, which always does


@dataclass(frozen=True, kw_only=True)
class Dyck(Task):
    """Tell balanced from unbalanced parentheses."""

    length: int = 40
    """Parentheses in a sequence."""

    def check(self) -> None:
        if not 2 <= self.length <= 10_000 or self.length % 2:
            raise ConfigError(
                f"--length is {self.length}: a balanced sequence has an even length, "
                "and 10000 at most"
            )

    @property
    def token_count(self) -> int:
        return 6

    @property
    def positions(self) -> int:
        return self.length + 2

    def draw(self, rng: np.random.Generator, count: int) -> Examples:
        steps_NL = balanced(rng, count, self.length, _share_of_up)
        miss_N = rng.random(count) < 0.5
        steps_NL[miss_N] = _near_miss(rng, steps_NL[miss_N])
        tokens = np.empty((count, self.positions), dtype=np.int32)
        tokens[:, 0], tokens[:, -1] = START, ASK
        tokens[:, 1:-1] = np.where(steps_NL > 0, OPEN, CLOSE)
        labels = np.full(tokens.shape, IGNORE_INDEX, dtype=np.int32)
        labels[:, -1] = np.where(miss_N, NO, YES)
        depth_N = np.cumsum(steps_NL, axis=1).max(1, initial=0)
        return Examples(tokens, labels, {"depth": depth_N[:, None]})

    def token_name(self, token: int) -> str:
        return ["(", ")", "start", "?", "no", "yes"][token]

    def write(self, tokens_L: np.ndarray, labels_L: np.ndarray) -> tuple[str, str]:
        sequence = "".join(map(self.token_name, tokens_L[1:-1]))
        return sequence, self.token_name(labels_L[-1])


def balanced(
    rng: np.random.Generator,
    count: int,
    length: int,
    share_of_up: Callable[[np.ndarray, int], np.ndarray],
) -> np.ndarray:
    """Return (count, length): balanced sequences of +1 and -1, drawn uniformly, step by step. Of
    all ways down to 0 from a height with some steps left, `share_of_up(height, left)` is the share
    that goes up first."""
    steps_LN = np.empty((length, count), dtype=np.int16)
    height = np.zeros(count, dtype=np.int64)
    uniform_LN = rng.random((length, count))
    for place in range(length):
        up = uniform_LN[place] < share_of_up(height, length - place)
        steps_LN[place] = np.where(up, 1, -1)
        height += steps_LN[place]
    return steps_LN.T.copy()


def _share_of_up(height: np.ndarray, left: int) -> np.ndarray:
    """Return the share among the ways that never fall below 0."""
    return (height + 2) * (left - height) / (2 * left * (height + 1))


def _near_miss(rng: np.random.Generator, steps_NL: np.ndarray) -> np.ndarray:
    count, length = steps_NL.shape
    missed = steps_NL.copy()
    swap = rng.random(count) < 0.5
    for _ in range(_SWAPS):
        rows = np.flatnonzero(swap & is_balanced(missed))
        one, other = rng.integers(0, length, (2, len(rows)))
        missed[rows] = steps_NL[rows]
        missed[rows, one], missed[rows, other] = steps_NL[rows, other], steps_NL[rows, one]
    rows = np.flatnonzero(is_balanced(missed))
    missed[rows, rng.integers(0, length, len(rows))] *= -1
    return missed


def is_balanced(steps_NL: np.ndarray) -> np.ndarray:
    """Return which sequences of +1 and -1 are balanced."""
    height_NL = np.cumsum(steps_NL, axis=1)
    return (height_NL.min(1) >= 0) & (height_NL[:, -1] == 0)
