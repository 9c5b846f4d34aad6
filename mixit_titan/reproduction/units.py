"""How results are written: accuracies, losses, counts, ratios."""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """How a kind of value is written and drawn."""

    label: str
    """The label of an axis."""
    show: Callable[[float], str]
    """Writes a value."""
    gap: Callable[[float], str]
    """Writes the difference of two values."""
    factor: float = 1.0
    """The factor from a value to the units of the axis."""
    logarithmic: bool = False
    """Whether the axis is logarithmic; values are then compared by their ratios."""
    least: float = -math.inf
    most: float = math.inf
    """The range of possible values, from `least` to `most`."""


def _many(number: float, what: str) -> str:
    return f"{number:.4g} {what}{'' if number == 1 else 's'}"


PERCENT = Unit(
    "accuracy (%)",
    "{:.2%}".format,
    lambda x: _many(100 * x, "point"),
    100.0,
    least=0.0,
    most=1.0,
)
NATS = Unit("log perplexity (nats per token)", "{:.3f}".format, lambda x: _many(x, "nat"))
BITS_PER_BYTE = Unit("validation loss (bits per byte)", "{:.3f}".format, lambda x: _many(x, "bit"))
BITS = Unit("bits per trained parameter", "{:.2f}".format, lambda x: _many(x, "bit"))
COUNT = Unit("", "{:,.0f}".format, "{:,.0f}".format)
RATE = Unit("samples/s", "{:,.1f}".format, "{:,.1f}".format)
RATIO = Unit("throughput relative to standard", "{:.3f}x".format, "{:g}".format)
COVARIANCE = Unit("covariance", "{:.5f}".format, "{:g}".format, logarithmic=True)
SHARE = Unit("attention mass", "{:.2f}".format, "{:g}".format, least=0.0, most=1.0)
LAYERS = Unit("share of layers that attend", "{:.0%}".format, "{:.0%}".format, 100.0)
