"""The variants, which are stacks with a name, and the keys of [model] that say what its layers
are."""

from collections.abc import Iterable

from mixit_titan.errors import ConfigError, shown, unknown
from mixit_titan.model.pairs import LAYER_PARTS, OUTER_PARTS, PAIRS
from mixit_titan.model.stack import Stack, read_stack, uniform

VARIANTS: dict[str, Stack] = {name: Stack((pair,)) for name, pair in PAIRS.items()}


def find_stack(
    layers: int,
    *,
    stack: str | None = None,
    variant: str | None = None,
    mixer: str | None = None,
    freeze: Iterable[str] | None = None,
) -> Stack:
    """Return the layers of a model, from a stack as written (model/stack.py) or from a variant or
    mixer for all layers."""
    if stack is None:
        return find_variant(variant, mixer, freeze)
    for key, value in (("variant", variant), ("mixer", mixer)):
        if value is not None:
            raise ConfigError(
                f"model.stack = {stack!r} says what the layers are, and so does model.{key} = "
                f"{value!r}: leave one of them out"
            )
    found = read_stack(stack, layers)
    for part in freeze or ():
        if part in LAYER_PARTS:
            raise ConfigError(
                f"model.freeze names {part!r}, and beside a stack it is for the model as a whole "
                f"({', '.join(OUTER_PARTS)}): {_inside(part, found)}"
            )
        if part not in OUTER_PARTS:
            raise unknown("part in model.freeze", part, OUTER_PARTS)
    return read_stack(stack, layers, freeze or ())


def _inside(part: str, stack: Stack) -> str:
    """Say how the stack itself would freeze a part of its layers."""
    mixer = next((pair.mixer for pair in stack.pairs if part in pair.parts), None)
    if mixer is None:
        return f"leave it out, no layer of {stack.name!r} has it"
    return f"write {mixer}-freeze-{part} in the stack"


def unknown_variant(what: str, name: str, allowed: Iterable[str], stack: str) -> ConfigError:
    """Return the error for an unknown variant; `stack` is the option or key that takes a stack of
    several pairs, which is not a variant."""
    if set(name) & set(" *@"):
        return ConfigError(f"{what} {shown(name)} is a stack of pairs: name it with {stack}")
    return unknown(what, name, allowed)


def find_variant(
    variant: str | None = None, mixer: str | None = None, freeze: Iterable[str] | None = None
) -> Stack:
    """Return a named stack, or one from its two halves; `freeze` takes the place of a variant's
    own."""
    if variant is None:
        if mixer is None and freeze is None:
            raise ConfigError(f"model.variant is missing: one of {', '.join(VARIANTS)}")
        return uniform(mixer or "attention", freeze or ())
    if variant not in VARIANTS:
        raise unknown_variant("model.variant", variant, VARIANTS, "model.stack")
    own = PAIRS[variant].mixer
    if mixer not in (None, own):
        raise ConfigError(
            f"model.variant = {variant!r} mixes by {own} and model.mixer = {mixer!r}: "
            "leave one of them out"
        )
    return VARIANTS[variant] if freeze is None else uniform(own, freeze)
