"""Float8 for the matrix products of the layers, by torchtitan's converter.

Weights keep their dtype: float32 for the optimizer, bfloat16 where frozen, and the same in
checkpoints. They and the activations are rounded to float8 just before each product.
"""

import dataclasses
import importlib.util
from dataclasses import dataclass

import torch
from torchtitan.components.quantization import Float8Linear, Float8LinearConverter
from torchtitan.models.common import Linear
from torchtitan.tools import utils

from mixit_titan.device import has_gpu
from mixit_titan.errors import ConfigError
from mixit_titan.log import logger
from mixit_titan.model.llama import Float8Recipe, MixitLlama, ScaledLinear

_INSTALL = "pip install -c constraints.txt -e '.[float8]'"  # as docs/training.md says
_HEAD = "lm_head"  # rounding it would round the logits

if Float8Linear is not None:

    class ScaledFloat8Linear(Float8Linear):
        """Computes factor * (W x + b) with the product in float8."""

        @dataclass(kw_only=True, slots=True)
        class Config(Float8Linear.Config):
            factor: float

        def __init__(self, config: Config) -> None:
            super().__init__(config)
            self.factor = config.factor

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return self.factor * super().forward(input)


def check_float8(recipe: Float8Recipe, *, emulate: bool, compiled: bool, on_gpu: bool) -> None:
    """Refuse float8 with a ConfigError where it would not run or would not be faster. `on_gpu` says
    whether the model will run on a GPU, which need not be in this machine."""
    key = f"quantize.recipe = {recipe!r}"
    if Float8Linear is None:
        missing = importlib.util.find_spec("torchao") is None
        raise ConfigError(
            f"{key} needs the package torchao, which "
            + ("is not installed" if missing else f"does not work with torch {torch.__version__}")
            + f": {_INSTALL}, or remove [quantize]"
        )
    if emulate:
        if compiled:
            raise ConfigError("quantize.emulate is for eager runs: set compile.enable = false")
        return
    if not on_gpu:
        raise ConfigError(
            f"{key} needs a GPU with float8, and this machine has none: remove [quantize], or set "
            "quantize.emulate = true to see its rounding without its speed"
        )
    if has_gpu() and not (utils.has_cuda_capability(8, 9) or utils.has_rocm_capability(9, 4)):
        raise ConfigError(
            f"{key} needs a GPU with float8 (compute capability 8.9 or higher, as an L40S, H100 or "
            f"B200 has), and this one is {torch.cuda.get_device_name()}: remove [quantize]"
        )
    if not compiled:
        # Without compilation torchao rounds in many launches, and computes the gradient of a frozen
        # weight.
        raise ConfigError(
            f"{key} is slower than bfloat16 without torch.compile: set compile.enable = true, with "
            "'model' among compile.components"
        )


def quantize(
    config: MixitLlama.Config, recipe: Float8Recipe, *, emulate: bool, compiled: bool
) -> MixitLlama.Config:
    """Return the model's config with the linears of its layers, frozen ones included, in float8.
    The head is left alone, and so are linears with a width that is not a multiple of 16. If the
    model will run on GPUs of other machines, its linears are left alone."""
    config.float8 = recipe
    if not emulate and not has_gpu():
        return config
    factors = {fqn: scaled.factor for fqn, scaled, *_ in config.traverse(ScaledLinear.Config)}
    converter = Float8LinearConverter.Config(
        recipe_name=recipe,
        filter_fqns=[_HEAD],
        emulate=emulate,
        model_compile_enabled=compiled,
    ).build()
    if emulate:  # torchtitan emulates a different recipe from the one requested
        recipes = type(converter.torchao_config)
        asked = recipes.from_recipe_name(recipe)
        converter.torchao_config = dataclasses.replace(asked, emulate=True)
    config = converter.convert(config)
    linears = {fqn: linear for fqn, linear, *_ in config.traverse(Linear.Config)}
    converted = {fqn for fqn, linear in linears.items() if isinstance(linear, Float8Linear.Config)}
    if not converted:
        raise ConfigError(
            f"quantize.recipe = {recipe!r} needs widths that are multiples of 16, and model.width "
            f"is {config.shape.width}: change it, or remove [quantize]"
        )
    for fqn, linear, parent, attribute in config.traverse(Float8Linear.Config):
        if fqn in factors:  # the converter has dropped it
            settings = {
                f.name: getattr(linear, f.name) for f in dataclasses.fields(linear) if f.init
            }
            setattr(parent, attribute, ScaledFloat8Linear.Config(**settings, factor=factors[fqn]))
    rest = sorted(linears.keys() - converted)
    logger.info(f"Float8 ({recipe}) in {len(converted)} linears, not in {', '.join(rest)}")
    return config
