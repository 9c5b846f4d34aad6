"""Groups of weights, and which parts of a model are trained when."""

import dataclasses
import re

import pytest

from mixit_titan.errors import ConfigError
from mixit_titan.model.accounting import weights
from mixit_titan.model.freezing import pattern_of
from mixit_titan.model.phases import Spell, phase_of, phases, read_parts, trained
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import Stack, read_stack

SHAPE = Shape(layers=4, width=8, heads=2, hidden=16, vocab=32, seq_len=8)
HYBRID = read_stack("mixit standard frozen_qk learned", 4)


def names(text: str, stack: Stack = HYBRID) -> set[str]:
    """Those that a group's pattern finds among the names of all weights."""
    pattern = re.compile(pattern_of(read_parts(text, SHAPE, stack)))
    return {weight.name for weight in weights(SHAPE, stack) if pattern.search(weight.name)}


def test_words_choose_weights_by_part_and_layer() -> None:
    qkv = "attention.qkv_linear"
    assert names("qk") == {f"layers.1.{qkv}.w{k}.weight" for k in "qk"}  # frozen in layer 2
    assert names("v@upper") == {f"layers.2.{qkv}.wv.weight", "layers.3.attention.wv.weight"}
    assert names("matrix") == {"layers.3.attention.inner_attention.weight"}
    assert names("norm@last") == {f"layers.3.{n}_norm.weight" for n in ("attention", "ffn")}
    assert len(names("norm")) == 2 * 4 + 1 and "norm.weight" in names("norm")
    assert names("embedding head") == {
        *("tok_embeddings.weight", "tok_embeddings.position_weight", "lm_head.weight")
    }
    layer_2 = {w.name for w in weights(SHAPE, HYBRID) if w.name.startswith("layers.2.")}
    assert names("@2") == {name for name in layer_2 if ".wq." not in name and ".wk." not in name}
    assert names("@1-2") == names("@1 @2")


def test_layers_are_told_apart_by_their_whole_number() -> None:
    shape, stack = dataclasses.replace(SHAPE, layers=12), read_stack("standard", 12)
    pattern = re.compile(pattern_of(read_parts("o@1", shape, stack)))
    found = [w.name for w in weights(shape, stack) if pattern.search(w.name)]
    assert found == ["layers.1.attention.wo.weight"]


WRONG = {
    "": "is empty",
    "qq": "unknown part 'qq' in optimizer.groups",
    "qk@uper": "unknown place 'uper' .*did you mean 'upper'",
    "qk@4": "says @4, but the layers are 0 to 3",
    "qk@0": r"'qk@0' .* matches nothing: the layers there \(mixing .*\) have no qk",
    "matrix@lower": "matches nothing",
    "qk@2": r"'qk@2' .* is frozen for the entire run by the model's layers",
    "head@2": "head in .* is not part of a layer",
    "@": "unknown place ''",
    "embedding mlp qk@": "unknown place ''",
}


@pytest.mark.parametrize(("text", "said"), WRONG.items())
def test_a_word_that_matches_nothing_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        read_parts(text, SHAPE, HYBRID)
    assert "\n" not in str(error.value)


def test_a_tied_weight_is_the_embeddings() -> None:
    tied = dataclasses.replace(SHAPE, tied=True)
    stack = read_stack("standard", 4)
    with pytest.raises(ConfigError, match="one weight: name embedding"):
        read_parts("head", tied, stack)
    (first,) = phases(tied, stack, [Spell("e", read_parts("embedding", tied, stack), until=3)])[:1]
    assert first.stack.freezes("embedding") and first.stack.freezes("head")


def spell(text: str, **steps: int) -> Spell:
    return Spell(text, read_parts(text, SHAPE, HYBRID), **steps)


def test_phases_begin_where_something_thaws_or_freezes() -> None:
    spells = [spell("mlp@upper", until=100), spell("head", until=100, after=300)]
    found = phases(SHAPE, HYBRID, spells)
    assert [phase.after for phase in found] == [0, 100, 300]
    mlp, head, total = 3 * 8 * 16, 32 * 8, sum(w.elements for w in weights(SHAPE, HYBRID))
    qk = 2 * 8 * 8  # which frozen_qk freezes for good
    assert trained(SHAPE, found, 400) == [
        (1, 100, total - qk - 2 * mlp - head, qk + 2 * mlp + head),
        (101, 300, total - qk, qk),
        (301, 400, total - qk - head, qk + head),
    ]
    assert [phase.change for phase in found] == [
        *("freezes mlp@upper, head", "thaws mlp@upper, head", "freezes head")
    ]
    assert [phase_of(found, step).after for step in (1, 100, 101, 300, 301)] == [
        0,
        0,
        100,
        100,
        300,
    ]
    assert phases(SHAPE, HYBRID, []) == []


def test_a_phase_trains_something() -> None:
    everything = "@0-3 norm embedding head"
    with pytest.raises(ConfigError, match="leaves nothing to train in step 6"):
        phases(SHAPE, HYBRID, [spell(everything, after=5)])
