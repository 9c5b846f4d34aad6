"""A variant is a pair: what mixes the tokens, and which parts stay at their random start."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from mixit_titan.errors import ConfigError, unknown

Mixer = Literal["attention", "mixing"]
MIXERS = get_args(Mixer)

PARTS = {
    "qk": "query and key projections",
    "v": "value projections",
    "o": "output projections of the mixers",
    "mlp": "the gated MLPs",
    "norm": "all normalisation weights, the last one included",
    "embedding": "token embedding, and position embedding where there is one",
    "head": "unembedding",
}


@dataclass(frozen=True, kw_only=True)
class Variant:
    mixer: Mixer
    frozen: tuple[str, ...] = ()
    """Names out of PARTS, in the order of PARTS."""

    def __post_init__(self) -> None:
        if self.mixer not in MIXERS:
            raise unknown("model.mixer", self.mixer, MIXERS)
        for part in self.frozen:
            if part not in PARTS:
                raise unknown("part in model.freeze", part, PARTS)
        if self.mixer == "mixing" and "qk" in self.frozen:
            raise ConfigError(
                "model.freeze names 'qk', but the mixing mixer has no queries and keys: remove it"
            )
        if set(self.frozen) == set(PARTS) - ({"qk"} if self.mixer == "mixing" else set()):
            raise ConfigError("model.freeze names every part: nothing is left to train")
        object.__setattr__(self, "frozen", tuple(p for p in PARTS if p in self.frozen))

    @property
    def name(self) -> str:
        """The variant's own name, or its parts: `attention-freeze-qk-mlp`."""
        for name, variant in VARIANTS.items():
            if variant == self:
                return name
        return "-".join([self.mixer, *(["freeze", *self.frozen] if self.frozen else [])])


VARIANTS: dict[str, Variant] = {}
VARIANTS.update(
    standard=Variant(mixer="attention"),
    frozen_qk=Variant(mixer="attention", frozen=("qk",)),
    frozen_mlp=Variant(mixer="attention", frozen=("mlp",)),
    mixit=Variant(mixer="mixing"),
    random=Variant(mixer="attention", frozen=("qk", "v", "o", "mlp", "norm")),
)


def find_variant(
    variant: str | None = None, mixer: str | None = None, freeze: Iterable[str] | None = None
) -> Variant:
    """A named variant, or one from its two halves; `freeze` takes the place of a variant's own."""
    if variant is None:
        if mixer is None and freeze is None:
            raise ConfigError(f"model.variant is missing: one of {', '.join(VARIANTS)}")
        return Variant(mixer=mixer or "attention", frozen=tuple(freeze or ()))
    if variant not in VARIANTS:
        raise unknown("model.variant", variant, VARIANTS)
    base = VARIANTS[variant]
    if mixer not in (None, base.mixer):
        raise ConfigError(
            f"model.variant = {variant!r} mixes by {base.mixer} and model.mixer = {mixer!r}: "
            "leave one of them out"
        )
    return base if freeze is None else Variant(mixer=base.mixer, frozen=tuple(freeze))
