"""Groups of weights with settings of their own, and which weights are trained at which steps.

    qk              the queries and keys of every layer that has them
    qk@upper mlp@2  of some layers, by the places in a stack
    @2-5            all that these layers train
    norm            all normalization weights, the last one too
    embedding head  of the model as a whole

A group of weights can be frozen for part of the run. For a model of 4 layers whose `mlp@upper` is
frozen until step 100, and whose head is frozen after step 300, there are three phases:

    after   0   mlp of layers 2 and 3 is frozen
    after 100   everything is trained
    after 300   the head is frozen
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mixit_titan.errors import ConfigError, shown, unknown
from mixit_titan.model.accounting import count, weights
from mixit_titan.model.pairs import OUTER_PARTS, PARTS
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import Stack, Weights, read_place

KEY = "optimizer.groups"


@dataclass(frozen=True)
class Spell:
    """Weights that are frozen until a step, after a step, or both."""

    parts: str
    """The weights as the config names them."""
    chosen: frozenset[Weights]
    until: int = 0
    after: int | None = None

    def frozen_in(self, step: int) -> bool:
        """Return whether a step leaves the weights unchanged."""
        return step <= self.until or (self.after is not None and step > self.after)


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A range of steps that trains the same weights."""

    after: int
    """The last step before the phase."""
    stack: Stack
    """The model's stack, including whatever is frozen during the phase."""
    change: str = ""
    """What thaws and what freezes here."""


def read_parts(text: str, shape: Shape, stack: Stack) -> frozenset[Weights]:
    """Return the trained weights that a text names; a word that matches none of them is a
    ConfigError."""
    where = f"{KEY}: parts = {shown(text)}"
    chosen: set[Weights] = set()
    for word in text.split():
        chosen |= _read_word(word, shape, stack, where)
    if not chosen:
        raise ConfigError(f"{where} is empty: name parts, as in 'qk@upper mlp'")
    return frozenset(chosen)


def _read_word(word: str, shape: Shape, stack: Stack, where: str) -> set[Weights]:
    part, at, place = word.partition("@")
    if part and part not in PARTS:
        raise unknown("part", part, PARTS, where=where)
    if part in OUTER_PARTS:
        return _outer(part, bool(at), shape, stack, where)
    if part == "" and at == "":
        raise ConfigError(f"{shown(word)} in {where} is not PART, PART@PLACE or @PLACE")
    pairs = stack.fill(shape.layers)
    layers = read_place(place, shape.layers, where) if at else range(shape.layers)
    there = {(p, n) for n in layers for p in pairs[n].parts if part in ("", p)}
    if not there:
        raise ConfigError(f"{shown(word)} in {where} matches nothing: {_lacking(part, stack)}")
    trained = {(p, n) for p, n in there if p not in pairs[n].frozen}
    if part == "norm" and not at and not stack.freezes("norm"):
        trained.add(("norm", None))
    if not trained:
        raise ConfigError(
            f"{shown(word)} in {where} is frozen for the entire run by the model's layers "
            f"({stack.name}): leave it out, or give it freeze_until in place of that"
        )
    return trained


def _lacking(part: str, stack: Stack) -> str:
    return f"the layers there ({stack.mixers}) have no {part}, so leave it out"


def _outer(part: str, placed: bool, shape: Shape, stack: Stack, where: str) -> set[Weights]:
    if placed:
        raise ConfigError(f"{part} in {where} is not part of a layer: leave out what is after it")
    if shape.tied and part == "head":
        raise ConfigError(
            f"model.tied makes head and embedding one weight: name embedding ({where})"
        )
    if stack.freezes(part):
        raise ConfigError(
            f"{part} in {where} is frozen for the entire run by model.freeze: leave it out, or "
            "give it freeze_until in place of that"
        )
    return {(part, None), ("head", None)} if shape.tied else {(part, None)}


def check_apart(chosen: Sequence[frozenset[Weights]]) -> None:
    """Refuse weights that belong to two groups."""
    seen: set[Weights] = set()
    for each in chosen:
        if twice := sorted(seen & each, key=str):
            part, layer = twice[0]
            which = part if layer is None else f"{part}@{layer}"
            raise ConfigError(f"{KEY} names {which} in two groups: leave it out of one of them")
        seen |= each


def phases(shape: Shape, stack: Stack, spells: Iterable[Spell]) -> list[Phase]:
    """Return what is trained when, in the order of the steps; empty if nothing changes."""
    spells = list(spells)
    starts = {0, *(spell.until for spell in spells)}
    starts |= {spell.after for spell in spells if spell.after is not None}
    found = [_phase(shape, stack, spells, start) for start in sorted(starts)]
    return found if spells else []


def _phase(shape: Shape, stack: Stack, spells: list[Spell], after: int) -> Phase:
    frozen = [spell for spell in spells if spell.frozen_in(after + 1)]
    chosen = {weights for spell in frozen for weights in spell.chosen}
    nothing = ConfigError(
        f"{KEY} leaves nothing to train in step {after + 1}: freeze less until or after a step"
    )
    try:
        found = stack.freezing(chosen, shape.layers)
    except ConfigError:  # all of it is frozen
        raise nothing from None
    if not any(weight.trained for weight in weights(shape, found)):
        raise nothing
    thaws = [spell.parts for spell in spells if after and spell.until == after]
    freezes = [s.parts for s in spells if s.after == after or (after == 0 and s in frozen)]
    said = {"thaws": thaws, "freezes": freezes}
    change = "; ".join(f"{verb} {', '.join(parts)}" for verb, parts in said.items() if parts)
    return Phase(after=after, stack=found, change=change)


class Trained(NamedTuple):
    """How many parameters the steps from `first` to `last` train."""

    first: int
    last: int
    trainable: int
    frozen: int


def trained(shape: Shape, found: Sequence[Phase], steps: int) -> list[Trained]:
    """Return the trained parameters of each phase of a run of `steps` steps."""
    begun = [phase for phase in found if phase.after < steps]
    ends = [*(phase.after for phase in begun[1:]), steps]
    counts = [count(shape, phase.stack) for phase in begun]
    return [
        Trained(phase.after + 1, end, each.trainable, each.frozen)
        for phase, end, each in zip(begun, ends, counts, strict=False)
    ]


def phase_of(found: Sequence[Phase], step: int) -> Phase:
    """Return the phase of a step, counted from 1."""
    return [phase for phase in found if phase.after < step][-1]
