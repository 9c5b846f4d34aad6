"""The standard deviation of the weights at initialization, per part of the model, as a number or a
rule.

0.02           that number
"fan_in"       1/sqrt(inputs) for each linear, so that its outputs are as large as its inputs
"1.6 fan_in"   a multiple of the rule
{qk = "1.6 fan_in", mlp = 0.02}   by part; parts not named follow `fan_in`

Some recipes already multiply the outputs of their linears by a factor that depends on the inputs;
for these the rule gives the authors' 0.02. An embedding has one input per token, so the rule gives
1; an embedding that is tied to the head is initialized as the head.
"""

import math
import re
from typing import Any

from mixit_titan.errors import ConfigError, shown, unknown
from mixit_titan.ranges import Range

Std = float | str
"""A number, `fan_in`, or a multiple of it."""
LINEARS = ("qk", "v", "o", "mlp", "head")
"""The parts of a model that are matrix products."""
AUTHORS_STD = 0.02
"""The standard deviation of all weights in the paper authors' code."""

STD_RANGE = Range(least=0, most=1000)
_RULE = re.compile(r"(?:(\d+(?:\.\d*)?|\.\d+) )?fan_in")


def check_std(std: Any, name: str) -> None:
    """Refuse a value that is neither a number from 0 to 1000 nor a multiple of the rule."""
    if isinstance(std, str):
        found = _RULE.fullmatch(std)
        if found and float(found[1] or 1) in STD_RANGE:
            return
        raise ConfigError(
            f"{name} is {shown(std)}: it must be a number, 'fan_in' or a multiple of it, such as "
            "'1.6 fan_in'"
        )
    if isinstance(std, bool) or not isinstance(std, int | float) or std not in STD_RANGE:
        raise ConfigError(f"{name} is {shown(std)}: it must be {STD_RANGE}, or 'fan_in'")


def std_by_part(init_std: Std | dict[str, Std]) -> dict[str, Std]:
    """Return what `model.init_std` says for each part, with names and values checked."""
    if not isinstance(init_std, dict):
        check_std(init_std, "model.init_std")
        return dict.fromkeys(LINEARS, init_std)
    for part, std in init_std.items():
        if part not in LINEARS:
            raise unknown("part in model.init_std", part, LINEARS)
        check_std(std, f"model.init_std.{part}")
    return {part: init_std.get(part, "fan_in") for part in LINEARS}


def linear_std(std: Std, fan_in: int, *, scaled: bool = False) -> float:
    """Return the standard deviation of a linear's weight. `scaled`: its output has a factor of its
    own."""
    if not isinstance(std, str):
        return float(std)
    return _multiple(std) * (AUTHORS_STD if scaled else 1 / math.sqrt(fan_in))


def embedding_std(std: Std, *, head: float | None = None, scaled: bool = False) -> float:
    """Return the standard deviation of an embedding; `head` is that of a head it is tied to."""
    if not isinstance(std, str):
        return float(std)
    return _multiple(std) * (AUTHORS_STD if scaled else 1.0 if head is None else head)


def _multiple(rule: str) -> float:
    found = _RULE.fullmatch(rule)
    assert found, rule
    return float(found[1] or 1)
