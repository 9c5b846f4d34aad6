"""A model is a stack of pairs, one for each layer. This is how a stack is written:

mixit                 every layer
mixit*3 standard      three layers of one kind, then one of the other, repeated
frozen_qk@upper       some layers; the others are standard
mixit standard@0-1    some layers; the others are mixit

A word is a variant (`mixit`), a mixer (`mixing`), or a mixer with the frozen parts of the layer
(`attention-freeze-qk-mlp`). Layers are counted from 0, as in the names of weights.
"""

import hashlib
import itertools
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from mixit_titan.errors import ConfigError, shown, unknown
from mixit_titan.model.mixers.registry import MIXERS
from mixit_titan.model.pairs import LACKING, LAYER_PARTS, OUTER_PARTS, PAIRS, PARTS, Pair

PLACES: dict[str, Callable[[int], range]] = {
    "first": lambda layers: range(1),
    "last": lambda layers: range(layers - 1, layers),
    "lower": lambda layers: range(layers // 2),
    "upper": lambda layers: range(layers // 2, layers),
}
"""Named places: each maps the number of layers to the layers it means."""
Weights = tuple[str, int | None]
"""A layer and one of its parts; the layer is None for a part of the model as a whole."""
_WORD = re.compile(r"([^*@]+)(?:\*(\d{1,5})|@([^*@]+))?")
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
_LONGEST_NAME = 60  # in the name of a folder


@dataclass(frozen=True)
class Stack:
    """The layers of a model, and what is frozen of the model as a whole."""

    pairs: tuple[Pair, ...]
    """The pairs, which repeat to fill the layers of a model. As few as possible, so that two stacks
    with the same layers are equal."""
    outer: tuple[str, ...] = ()
    """Frozen parts of the model as a whole, out of OUTER_PARTS, in their order."""

    def __post_init__(self) -> None:
        pairs, count = self.pairs, len(self.pairs)
        for period in range(1, count + 1):
            if count % period == 0 and pairs == pairs[:period] * (count // period):
                object.__setattr__(self, "pairs", pairs[:period])
                break
        object.__setattr__(self, "outer", tuple(p for p in OUTER_PARTS if p in self.outer))
        everything = all(pair.frozen == pair.parts for pair in self.pairs)
        if everything and set(self.outer) == set(OUTER_PARTS):
            raise ConfigError("model.freeze names every part: nothing is left to train")

    def fill(self, layers: int) -> tuple[Pair, ...]:
        """Return the pair of each layer of a model."""
        if layers % len(self.pairs):
            raise _misfit(self.name, len(self.pairs), layers)
        return self.pairs * (layers // len(self.pairs))

    def pair(self, layer: int) -> Pair:
        """Return the pair of one layer."""
        return self.pairs[layer % len(self.pairs)]

    def freezes(self, part: str, layer: int | None = None) -> bool:
        """Return whether a part is frozen, in a layer or in the model as a whole: embedding, head,
        and the last norm, which is frozen if the norms of all layers are."""
        if layer is not None:
            return part in self.pair(layer).frozen
        return part in self.outer or all(part in pair.frozen for pair in self.pairs)

    def freezing(self, chosen: Collection[Weights], layers: int) -> "Stack":
        """Return the same layers with more of them frozen."""
        pairs = [
            replace(pair, frozen=(*pair.frozen, *(p for p in pair.parts if (p, layer) in chosen)))
            for layer, pair in enumerate(self.fill(layers))
        ]
        return Stack(tuple(pairs), (*self.outer, *(part for part, at in chosen if at is None)))

    @property
    def mixes(self) -> bool:
        """Whether some layer mixes by position alone."""
        return not all(pair.attends for pair in self.pairs)

    @property
    def attends(self) -> bool:
        """Whether some layer has queries and keys."""
        return any(pair.attends for pair in self.pairs)

    @property
    def attention_share(self) -> float:
        """The share of the layers that have queries and keys."""
        return sum(pair.attends for pair in self.pairs) / len(self.pairs)

    @property
    def drawn(self) -> bool:
        """Return whether some layer has a matrix that a recipe describes."""
        return any(MIXERS[pair.mixer].drawn for pair in self.pairs)

    def only(self, mixer: str) -> bool:
        """Return whether all layers have that mixer."""
        return all(pair.mixer == mixer for pair in self.pairs)

    @property
    def mixers(self) -> str:
        """The mixers of the layers, as in `mixing` or `mixing*3 attention`."""
        return Stack(tuple(Pair(mixer=pair.mixer) for pair in self.pairs)).structure

    @property
    def frozen(self) -> tuple[str, ...]:
        """Every part that is frozen in some layer, in the order of PARTS."""
        found = {part for pair in self.pairs for part in pair.frozen} | {*self.outer}
        return tuple(part for part in PARTS if part in found)

    @property
    def name(self) -> str:
        """The stack as it is written, by the variant's own name or as `mixit*3 standard`, followed
        by what is frozen of the model as a whole."""
        if self.outer and len(self.pairs) == 1:
            return "-".join([self.pairs[0].mixer, "freeze", *self.frozen])
        outer = ["-".join(["freeze", *self.outer])] if self.outer else []
        return " ".join([_written(pair.name for pair in self.pairs), *outer])

    @property
    def structure(self) -> str:
        """The pairs without the names of variants, whose meaning may change one day."""
        return _written(pair.structure for pair in self.pairs)

    @property
    def folder(self) -> str:
        """The name in a form that can be part of a path."""
        return as_folder(self.name)


def as_folder(text: str) -> str:
    """Return the name of a stack as part of a path, without spaces and stars, and shortened."""
    name = "_".join(text.replace("*", "x").split())
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _misfit(text: str, count: int, layers: int) -> ConfigError:
    return ConfigError(
        f"the stack {shown(text)} is {count} layers, which do not fill model.layers = {layers}: "
        f"set the layers to a multiple of {count}, or say where they are, as in "
        "'mixit standard@0-1'"
    )


def _written(names: Iterable[str]) -> str:
    runs = [(name, len(list(same))) for name, same in itertools.groupby(names)]
    if len(runs) == 1:  # one pair, which repeats in any case
        return runs[0][0]
    return " ".join(name if count == 1 else f"{name}*{count}" for name, count in runs)


def says_mixing(text: str) -> bool:
    """Return whether a stack written like this has matrices of a recipe, whatever its layers."""
    mixers = [name for name, mixer in MIXERS.items() if mixer.drawn]
    names = [name for name, pair in PAIRS.items() if pair.mixer in mixers]
    return any(name in text for name in [*mixers, *names])


def uniform(mixer: str, frozen: Iterable[str] = ()) -> Stack:
    """Return a stack of one pair; `frozen` are names out of PARTS."""
    frozen = tuple(frozen)
    for part in frozen:
        if part not in PARTS:
            raise unknown("part in model.freeze", part, PARTS)
    pair = Pair(mixer=mixer, frozen=tuple(p for p in frozen if p in LAYER_PARTS))
    return Stack((pair,), tuple(p for p in frozen if p in OUTER_PARTS))


def read_stack(text: str, layers: int, outer: Iterable[str] = ()) -> Stack:
    """Return the stack that a text describes, for a model of `layers` layers; `outer` is frozen of
    the model as a whole."""
    where = f"the stack {shown(text)}"
    pattern: list[Pair] = []
    count = 0
    placed: dict[int, Pair] = {}
    for word in text.split():
        found = _WORD.fullmatch(word)
        if found is None or int(found[2] or 1) == 0:
            raise ConfigError(
                f"{shown(word)} in {where} is not NAME, NAME*COUNT or NAME@PLACE, such as "
                "mixit, mixit*3, mixit@upper or mixit@2-5"
            )
        pair = _pair(found[1], where)
        if found[3] is None:
            count += int(found[2] or 1)
            if count <= layers:
                pattern += [pair] * int(found[2] or 1)
            continue
        for layer in read_place(found[3], layers, where):
            if layer in placed:
                raise ConfigError(f"{where} names layer {layer} twice: leave one of them out")
            placed[layer] = pair
    if not count and not placed:
        raise ConfigError("the stack is empty: name what its layers are, as in 'mixit*3 standard'")
    if not count:
        pattern, count = [PAIRS["standard"]], 1
    if layers % count:
        raise _misfit(text, count, layers)
    rest = pattern * (layers // len(pattern))
    return Stack(tuple(placed.get(n, pair) for n, pair in enumerate(rest)), tuple(outer))


def _pair(name: str, where: str) -> Pair:
    if name in PAIRS:
        return PAIRS[name]
    mixer, _, parts = name.partition("-freeze-")
    if mixer not in MIXERS:
        raise unknown("variant or mixer", name, [*PAIRS, *MIXERS], where=where)
    frozen = tuple(parts.split("-")) if mixer != name else ()
    for part in frozen:
        if part in OUTER_PARTS:
            raise ConfigError(
                f"{name!r} in {where} freezes {part!r}, which is not part of a layer: name it in "
                "freeze, beside the stack"
            )
        if part not in LAYER_PARTS:
            raise unknown("part", part, LAYER_PARTS, where=where)
        if part not in Pair(mixer=mixer).parts:
            raise ConfigError(
                f"{name!r} in {where} freezes {part!r}, but the {mixer} mixer has no "
                f"{LACKING[part]}: remove it"
            )
    return Pair(mixer=mixer, frozen=frozen)


def read_place(place: str, layers: int, where: str) -> range:
    """Return the layers that a place such as `upper`, `2` or `2-5` means in a model of `layers`
    layers."""
    numbers = _RANGE.fullmatch(place)
    if numbers is None and place not in PLACES:
        raise unknown("place", place, [*PLACES, "2", "2-5"], where=where)
    if numbers is None:
        found = PLACES[place](layers)
    else:
        found = range(int(numbers[1]), int(numbers[2] or numbers[1]) + 1)
    if not found or found[-1] >= layers:
        raise ConfigError(
            f"{where} says @{place}, but the layers are 0 to {layers - 1}: name some of those"
        )
    return found
