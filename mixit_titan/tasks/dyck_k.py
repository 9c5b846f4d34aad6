"""Dyck-k: brackets of k kinds; wherever one closes, its kind is the label.

    tokens  (0 (1 1) (2 2)        of the word (0 (1 1) (2 2) 0)
    labels  .  1) .  2) 0)

The model gets all but the last bracket, and must give the next one wherever that closes: it must
know which open bracket was opened last. Chance accuracy is 1/k.

At most `depth` brackets are open at a time, which makes it the language Dyck-(k, m) of Hewitt et
al. (arXiv 2010.07515). All ways of opening and closing are equally likely, and kinds are uniform.
"""

import functools
from dataclasses import dataclass

import numpy as np

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.errors import ConfigError
from mixit_titan.tasks.dyck import balanced
from mixit_titan.tasks.examples import Examples
from mixit_titan.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class DyckK(Task):
    """Predict the kind of each closing bracket."""

    kinds: int = 8
    """Kinds of brackets."""
    depth: int = 5
    """The maximum nesting depth."""
    length: int = 64
    """Brackets in a sequence."""

    def check(self) -> None:
        if not 2 <= self.length <= 2000 or self.length % 2:
            raise ConfigError(
                f"--length is {self.length}: a balanced sequence has an even length, and 2000 at "
                "most"
            )
        if self.kinds < 1:
            raise ConfigError(f"--kinds is {self.kinds}: it must be at least 1")
        if self.depth < 1:
            raise ConfigError(f"--depth is {self.depth}: it must be at least 1")

    @property
    def token_count(self) -> int:
        return 2 * self.kinds

    @property
    def positions(self) -> int:
        return self.length - 1

    def draw(self, rng: np.random.Generator, count: int) -> Examples:
        depth = min(self.depth, self.length // 2)
        share = _share_of_up(self.length, depth)
        steps_NL = balanced(rng, count, self.length, lambda height, left: share[left][height])
        opens_LN = steps_NL.T > 0
        kinds_LN = rng.integers(0, self.kinds, opens_LN.shape, dtype=np.int32)
        # For an opening bracket and the one that closes it: the number open between them.
        depth_LN = steps_NL.T.cumsum(0) + ~opens_LN
        stack_DN, every = np.zeros((depth + 1, count), dtype=np.int32), np.arange(count)
        for kinds_N, opens_N, depth_N in zip(kinds_LN, opens_LN, depth_LN, strict=True):
            kinds_N[~opens_N] = stack_DN[depth_N, every][~opens_N]
            stack_DN[depth_N, every] = kinds_N
        brackets_LN = kinds_LN + self.kinds * ~opens_LN
        labels_LN = np.where(opens_LN, IGNORE_INDEX, brackets_LN)
        return Examples(brackets_LN[:-1].T, labels_LN[1:].T, {"depth": depth_LN[1:].T})

    def token_name(self, token: int) -> str:
        return f"({token}" if token < self.kinds else f"{token - self.kinds})"


@functools.cache
def _share_of_up(length: int, depth: int) -> np.ndarray:
    """Return (length + 1, depth + 1), by `left` and height: of all ways down to height 0 in `left`
    steps, never below 0 nor above `depth`, the share that goes up first."""
    ways = [1] + [0] * depth
    shares = np.zeros((length + 1, depth + 1))
    for left in range(1, length + 1):
        up, down = [*ways[1:], 0], [0, *ways[:-1]]
        ways = [a + b for a, b in zip(up, down, strict=True)]
        shares[left] = [a / b if b else 0.0 for a, b in zip(up, ways, strict=True)]
    return shares
