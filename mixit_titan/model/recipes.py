"""The two recipes of MixiT: the paper's formula, and what its authors' code does.

Each knob can be set on its own. What depends on the knobs alone is computed here.
"""

import math
from dataclasses import asdict, dataclass
from typing import Literal

from mixit_titan.errors import unknown
from mixit_titan.kernels.mixing import MatrixSpec, Noise
from mixit_titan.model.shapes import Shape
from mixit_titan.ranges import SEED, SHARE, Range, check_ranges

RANGES = {
    **dict.fromkeys(
        ("std", "base_width", "base_hidden", "base_layers"), Range(above=0, most=2**24)
    ),
    "activation_c": Range(least=-(2**24), most=2**24),
    "depth_alpha": Range(least=-8, most=8),
    "residual": SHARE,
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The knobs of the mixing mixer. The defaults are equation 2.3 of the paper in a plain Llama
    block."""

    std: float | Literal["width", "heads", "length"] = "width"
    """Standard deviation of W. `width`: 1/sqrt(n m), with n the width and m the length. `heads`:
    drawn once per head, uniform between 1/sqrt(m head_width) and 1/sqrt(m). `length`: 1/sqrt(m). Or
    a number."""
    noise: Noise = "gaussian"
    """Distribution of W: `gaussian`, or `sign`, which is +std or -std by one random bit each and so
    is cheaper to draw on a GPU."""
    identity: bool = True
    """Add the identity to the centered noise."""
    sink_head: bool = False
    """Make head 0 of each layer a sink: half itself, half position 0."""
    causal: bool = True
    """Whether a token sees only earlier tokens. If not, it sees all of them, and rows are centered
    over the complete row: for classification."""
    residual: float | Literal["plain"] = "plain"
    """The residual. `plain`: x + f(x). A number lambda: lambda x + sqrt(1 - lambda^2) f(x)."""
    activation: Literal["silu", "leaky_relu"] = "silu"
    """Activation of the MLP's gate. `leaky_relu` has slope 1 + activation_c/sqrt(n) and its He
    gain."""
    activation_c: float = -1.0
    """The constant in the slope of `leaky_relu`."""
    linear_scale: bool = False
    """Multiply each linear's output by sqrt(base / fan_in)."""
    base_width: float = 512.0
    """The base of linear_scale for all linears except the MLP's down projection."""
    base_hidden: float = 1.0
    """The base of linear_scale for the MLP's down projection."""
    depth_alpha: float = 0.0
    """If not zero, use x + (base_layers / layers)^depth_alpha f(x) instead of `residual`, and the
    matrix with std = `length` and without the identity, whatever `std` and `identity` say."""
    base_layers: float = 4.0
    """The number of layers at which depth_alpha changes nothing."""

    def __post_init__(self) -> None:
        check_ranges(asdict(self), RANGES, "model.mixing.{}".format)

    def residual_scales(self, layers: int) -> tuple[float, float]:
        """Return (skip, branch) of `skip * x + branch * f(x)`."""
        if self.depth_alpha != 0:
            return 1.0, (self.base_layers / layers) ** self.depth_alpha
        if self.residual == "plain":
            return 1.0, 1.0
        return self.residual, math.sqrt(1 - self.residual**2)

    def gate_slope(self, width: int) -> float | None:
        """Return the negative slope of the gate's LeakyReLU, or None for SiLU."""
        if self.activation == "silu":
            return None
        return 1 + self.activation_c / math.sqrt(width)

    def linear_factor(self, fan_in: int, *, down: bool = False) -> float:
        """Return the factor that a linear's output is multiplied by."""
        base = self.base_hidden if down else self.base_width
        return math.sqrt(base / fan_in) if self.linear_scale else 1.0

    def matrix_spec(self, seed: int, shape: Shape) -> MatrixSpec:
        """Return the mixing matrix that the recipe gives for a shape."""
        check_ranges({"model.mixing.seed": seed}, {"model.mixing.seed": SEED})
        m = shape.seq_len
        std = "length" if self.depth_alpha != 0 else self.std
        if std == "width":
            low = high = 1 / math.sqrt(shape.width * m)
        elif std == "heads":
            low, high = 1 / math.sqrt(m * shape.head_dim), 1 / math.sqrt(m)
        elif std == "length":
            low = high = 1 / math.sqrt(m)
        else:
            low = high = float(std)
        return MatrixSpec(
            seed=seed,
            length=m,
            std_low=low,
            std_high=high,
            identity=self.identity and self.depth_alpha == 0,
            sink_head=self.sink_head,
            causal=self.causal,
            noise=self.noise,
        )


RECIPES = {
    "paper": Recipe(),
    # lambda = 0.5 is what the authors' language modeling uses; their tasks use sqrt(0.5).
    "official": Recipe(
        std="heads", sink_head=True, residual=0.5, activation="leaky_relu", linear_scale=True
    ),
}


def find_recipe(name: str) -> Recipe:
    """Return the recipe of a name; an unknown name is a ConfigError."""
    if name not in RECIPES:
        raise unknown("model.mixing.recipe", name, RECIPES)
    return RECIPES[name]
