"""A pair describes one layer: what mixes its tokens, and which of its parts stay at
initialization."""

from dataclasses import dataclass

from mixit_titan.errors import ConfigError, unknown
from mixit_titan.model.mixers.registry import MIXERS

LAYER_PARTS = {
    "qk": "query and key projections",
    "v": "value projections",
    "o": "output projections of the mixers",
    "matrix": "matrices of the learned mixer",
    "mlp": "the gated MLPs",
    "norm": "all normalization weights; the last one if those of all layers are frozen",
}
OUTER_PARTS = {
    "embedding": "token embedding, and position embedding where there is one",
    "head": "unembedding",
}
PARTS = LAYER_PARTS | OUTER_PARTS
"""The parts that can be frozen: those of a layer, and those of the model as a whole."""
LACKING = {"qk": "queries and keys", "matrix": "matrices to train"}
"""Parts that some mixers do not have."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One kind of layer: its mixer, and the parts of it that are frozen."""

    mixer: str
    """A name in MIXERS."""
    frozen: tuple[str, ...] = ()
    """Names out of LAYER_PARTS, in their order."""

    def __post_init__(self) -> None:
        if self.mixer not in MIXERS:
            raise unknown("model.mixer", self.mixer, MIXERS)
        for part in self.frozen:
            if part not in LAYER_PARTS:
                raise unknown("part of a layer in model.freeze", part, LAYER_PARTS)
        for part, lacking in LACKING.items():
            if part in self.frozen and part not in self.parts:
                raise ConfigError(
                    f"model.freeze names {part!r}, but the {self.mixer} mixer has no {lacking}: "
                    "remove it"
                )
        object.__setattr__(self, "frozen", tuple(p for p in LAYER_PARTS if p in self.frozen))

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that such a layer has."""
        own = (*MIXERS[self.mixer].parts, "mlp", "norm")
        return tuple(part for part in LAYER_PARTS if part in own)

    @property
    def attends(self) -> bool:
        """Whether the layer has queries and keys."""
        return MIXERS[self.mixer].attends

    @property
    def name(self) -> str:
        """The name of a variant, or else the structure."""
        return next((name for name, pair in PAIRS.items() if pair == self), self.structure)

    @property
    def structure(self) -> str:
        """`attention-freeze-qk-mlp`."""
        return "-".join([self.mixer, *(["freeze", *self.frozen] if self.frozen else [])])


PAIRS: dict[str, Pair] = {}
PAIRS.update(
    standard=Pair(mixer="attention"),
    frozen_qk=Pair(mixer="attention", frozen=("qk",)),
    frozen_mlp=Pair(mixer="attention", frozen=("mlp",)),
    mixit=Pair(mixer="mixing"),
    random=Pair(mixer="attention", frozen=("qk", "v", "o", "mlp", "norm")),
)
"""Named pairs: each names a layer in a stack, and a model whose layers are all of this kind."""
