"""[model] and [model.mixing] of a config file -> the config of a model."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from mixit_titan.data.packing import Packing
from mixit_titan.errors import ConfigError
from mixit_titan.model.build import AttentionBackend, llama_config
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.recipes import Recipe, find_recipe
from mixit_titan.model.shapes import Shape, find_flavor
from mixit_titan.model.variants import Variant, find_variant
from mixit_titan.sections import fill


@dataclass(kw_only=True)
class ModelSection:
    """Beside these, each field of Shape is a key of [model], and changes the flavour's value."""

    variant: str | None = None
    mixer: str | None = None
    freeze: list[str] | None = None
    flavor: str = "debug"
    attention: AttentionBackend = "auto"


@dataclass(kw_only=True)
class MixingSection:
    """Beside these, each field of Recipe is a key of [model.mixing], and changes the recipe's."""

    recipe: str = "paper"
    seed: int = 0


def model_from_section(
    table: dict[str, Any], where: str, packing: Packing
) -> tuple[str, MixitLlama.Config]:
    """The flavour's name and the model. Rows of one document each need no mask but the causal one:
    there `attention = "auto"` is SDPA, which has it for free."""
    shape_keys = _names(Shape)
    others = [*shape_keys, "mixing"]
    section = fill(ModelSection, table, section="model", where=where, others=others)
    variant = find_variant(section.variant, section.mixer, section.freeze)
    base = dataclasses.asdict(find_flavor(section.flavor))
    base |= {key: value for key, value in table.items() if key in shape_keys}
    shape = fill(Shape, base, section="model", where=where)
    recipe, seed = _mixing(table.get("mixing"), variant, where)
    attention = section.attention
    if attention == "auto" and packing == "documents":
        attention = "sdpa"
    config = llama_config(shape, variant, recipe, mixing_seed=seed, attention=attention)
    return section.flavor, config


def _mixing(table: Any, variant: Variant, where: str) -> tuple[Recipe, int]:
    if variant.mixer != "mixing":
        if table is not None:
            raise ConfigError(
                f"[model.mixing] in {where} is only for the mixing mixer, and the variant is "
                f'{variant.name!r}: remove the section, or set model.variant = "mixit"'
            )
        return Recipe(), 0
    if not isinstance(table, dict | None):
        raise ConfigError(f"model.mixing in {where} is {table!r}: it must be a section of keys")
    table = table or {}
    knobs = _names(Recipe)
    section = fill(MixingSection, table, section="model.mixing", where=where, others=knobs)
    base = dataclasses.asdict(find_recipe(section.recipe))
    base |= {key: value for key, value in table.items() if key in knobs}
    return fill(Recipe, base, section="model.mixing", where=where), section.seed


def _names(cls: type) -> list[str]:
    return [f.name for f in dataclasses.fields(cls)]
