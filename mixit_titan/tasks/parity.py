"""Parity: is the number of ones so far odd?

    tokens  1 0 1 1 0
    labels  1 1 0 1 1

One bit of state, which any input bit can flip: the smallest case of state tracking.
"""

from dataclasses import dataclass

from mixit_titan.tasks.running_sum import RunningSum


@dataclass(frozen=True, kw_only=True)
class Parity(RunningSum):
    """Track whether the number of ones so far is odd."""

    @property
    def modulus(self) -> int:
        return 2
