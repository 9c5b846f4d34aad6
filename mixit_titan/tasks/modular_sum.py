"""Modular sums over a sequence: the running sum of all numbers so far, modulo a number.

    tokens  3 4 0 1 2     (modulo 5)
    labels  3 2 2 3 0

State tracking in a cyclic group. (`modular` adds two numbers, and is the MixiT paper's.)
"""

from dataclasses import dataclass

from mixit_titan.errors import ConfigError
from mixit_titan.tasks.running_sum import RunningSum


@dataclass(frozen=True, kw_only=True)
class ModularSum(RunningSum):
    """Track a running sum modulo a number."""

    modulus: int = 5
    """Numbers are below the modulus."""

    def check(self) -> None:
        super().check()
        if not 2 <= self.modulus <= 10_000:
            raise ConfigError(f"--modulus is {self.modulus}: it must be in 2..10000")
