"""What `parity` and `modular_sum` share: the running sum of all numbers so far, modulo a number."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.errors import ConfigError
from mixit_titan.tasks.examples import Examples
from mixit_titan.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class RunningSum(Task):
    """The base of tasks that track a running sum."""

    length: int = 64
    """Numbers in a sequence."""
    labels: Literal["all", "last"] = "all"
    """Put a label at every number, or only at the last one."""

    def check(self) -> None:
        if self.length < 1:
            raise ConfigError(f"--length is {self.length}: it must be at least 1")

    @property
    @abstractmethod
    def modulus(self) -> int: ...

    @property
    def token_count(self) -> int:
        return self.modulus

    @property
    def positions(self) -> int:
        return self.length

    def draw(self, rng: np.random.Generator, count: int) -> Examples:
        tokens = rng.integers(0, self.modulus, (count, self.length), dtype=np.int32)
        labels = tokens.cumsum(1, dtype=np.int64) % self.modulus
        if self.labels == "last":
            labels[:, :-1] = IGNORE_INDEX
        return Examples(tokens, labels)
