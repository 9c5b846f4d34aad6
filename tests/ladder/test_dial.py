import pytest

from mixit_titan.ladder.dial import flops_per_token, layer_parameters
from mixit_titan.ladder.scales import SCALES
from mixit_titan.model.variants import VARIANTS, find_stack

DIAL = SCALES["cpu"].dial


def test_depth_sets_the_rest() -> None:
    """Depth 4 by hand: width 16 * 4, heads 64 / 16, hidden 8/3 * 64 = 170.7 rounded up to 176."""
    shape = DIAL.shape(4, vocab=320)
    assert (shape.width, shape.layers, shape.heads, shape.hidden) == (64, 4, 4, 176)
    assert (shape.vocab, shape.seq_len) == (320, 128)
    assert DIAL.rows(4) == 4 * 4
    assert DIAL.rate(4) == pytest.approx(DIAL.base_rate)  # 64 is the base
    assert DIAL.rate(16) == pytest.approx(DIAL.base_rate / 4)


@pytest.mark.parametrize(
    ("variant", "of_a_layer"),
    [
        ("standard", 4 * 64**2 + 3 * 64 * 176 + 2 * 64),
        ("frozen_mlp", 4 * 64**2 + 3 * 64 * 176 + 2 * 64),  # frozen, and there all the same
        ("mixit", 2 * 64**2 + 3 * 64 * 176 + 2 * 64),
    ],
)
def test_n_are_the_parameters_of_the_layers(variant: str, of_a_layer: int) -> None:
    assert layer_parameters(DIAL.shape(4, vocab=320), VARIANTS[variant]) == 4 * of_a_layer


def test_flops_are_those_of_training() -> None:
    """Six for each weight that multiplies, the head too, and six times the length and the width for
    a layer's causal attention."""
    multiplied = 4 * (4 * 64**2 + 3 * 64 * 176) + 320 * 64
    expected = 6 * multiplied + 4 * 6 * 128 * 64
    assert flops_per_token(DIAL.shape(4, vocab=320), VARIANTS["standard"]) == expected


@pytest.mark.parametrize("name", SCALES)
def test_every_stack_fills_every_depth(name: str) -> None:
    scale = SCALES[name]
    assert len(scale.depths) == 5
    for stack in scale.stacks:
        for depth in scale.depths:
            assert len(find_stack(depth, stack=stack).fill(depth)) == depth
