"""The standard deviation of weights at initialization, measured on what is drawn."""

import dataclasses

import numpy as np
import pytest
import torch

from mixit_titan.config.plan import plan_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.errors import ConfigError
from mixit_titan.model.build import llama_config
from mixit_titan.model.identity import identity
from mixit_titan.model.shapes import FLAVORS, Shape
from mixit_titan.model.variants import VARIANTS

from .conftest import build

WIDE = Shape(width=64, layers=2, heads=4, kv_heads=2, hidden=192, vocab=300, seq_len=96)


def expected_std(name: str, shape: Shape, rules: dict[str, float | str]) -> float:
    """By the name of the weight: a number, or a multiple of 1/sqrt(inputs) as text."""
    ends = {"wq": "qk", "wk": "qk", "wv": "v", "wo": "o", "w1": "mlp", "w2": "mlp", "w3": "mlp"}
    module = name.removesuffix(".weight").split(".")[-1]
    rule = rules["head" if module == "lm_head" else ends[module]]
    inputs = shape.hidden if module == "w2" else shape.width
    return float(rule) / np.sqrt(inputs) if isinstance(rule, str) else rule


def check_weights(
    shape: Shape, variant: str, rules: dict[str, float | str], embedding: float
) -> None:
    model = build(variant, shape=shape)
    seen = 0
    for name, weight in model.named_parameters():
        if "norm" in name:
            continue
        known = embedding if "tok_embeddings" in name else expected_std(name, shape, rules)
        numbers = weight.detach().numpy().astype(np.float64)
        # The deviation of n normals is off by 1/sqrt(2 n) of it, the mean by 1/sqrt(n).
        n = numbers.size
        assert abs(np.sqrt(np.mean(numbers**2)) / known - 1) < 5 / np.sqrt(2 * n), name
        assert abs(numbers.mean()) < 5 * known / np.sqrt(n), name
        seen += 1
    assert seen == (2 * 5 + 3 if variant == "mixit" else 2 * 7 + 2) - shape.tied


ALL_ONE = dict.fromkeys(("qk", "v", "o", "mlp", "head"), "1")


@pytest.mark.parametrize("variant", ["standard", "mixit"])
def test_by_default_a_weight_is_one_over_the_root_of_its_inputs(variant: str) -> None:
    check_weights(WIDE, variant, ALL_ONE, embedding=1.0)


@pytest.mark.parametrize("variant", ["frozen_qk", "mixit"])
def test_each_part_has_its_own(variant: str) -> None:
    """Keys and values are of one module in torchtitan, and of two parts."""
    table = {"qk": "1.6 fan_in", "v": 0.3, "mlp": "0.5 fan_in", "head": 0.02}
    rules = {"qk": "1.6", "v": 0.3, "o": "1", "mlp": "0.5", "head": 0.02}
    shape = dataclasses.replace(WIDE, init_std=table, embedding_std=0.7)
    check_weights(shape, variant, rules, embedding=0.7)


@pytest.mark.parametrize("variant", ["standard", "mixit"])
def test_a_tied_embedding_and_its_positions_start_as_the_head(variant: str) -> None:
    shape = dataclasses.replace(WIDE, tied=True, init_std={"head": "2 fan_in"})
    check_weights(shape, variant, ALL_ONE, embedding=2 / np.sqrt(64))


def test_linears_with_a_factor_of_their_own_start_as_the_authors() -> None:
    model = build("mixit", "official", shape=WIDE)
    for name, weight in model.named_parameters():
        if "norm" not in name:
            assert abs(weight.std().item() / 0.02 - 1) < 5 / np.sqrt(2 * weight.numel()), name


def test_what_is_compared_with_the_authors_starts_as_theirs() -> None:
    for name in ("table4", "paper"):
        assert (FLAVORS[name].init_std, FLAVORS[name].embedding_std) == (0.02, 0.02)
    shape = dataclasses.replace(WIDE, init_std=0.02, embedding_std=0.02)
    check_weights(shape, "standard", dict.fromkeys(ALL_ONE, 0.02), embedding=0.02)


def sizes(width: int, **stds: float) -> np.ndarray:
    """Root mean squares at initialization: what the attention and the MLP of the last layer add to
    the states, the last states, and the logits."""
    shape = Shape(width=width, layers=4, heads=4, hidden=4 * width, vocab=256, seq_len=64, **stds)
    model = build("standard", shape=shape)
    found = []
    last = model.layers["3"]
    for module in (last.attention, last.feed_forward, last):
        module.register_forward_hook(lambda _, __, out: found.append(out.pow(2).mean().sqrt()))
    tokens = torch.randint(0, 256, (4, 64), generator=torch.Generator().manual_seed(width))
    with torch.no_grad():
        logits = model(tokens)
    return np.array([*map(float, found), float(logits.pow(2).mean().sqrt())])


def test_activations_keep_their_size_at_any_width() -> None:
    by_rule = np.stack([sizes(width) for width in (32, 96, 288)])
    fixed = np.stack([sizes(w, init_std=0.02, embedding_std=0.02) for w in (32, 96, 288)])
    assert (by_rule.max(0) / by_rule.min(0) < 1.4).all(), by_rule
    assert (by_rule > 0.1).all() and (by_rule < 3).all(), by_rule
    # With one number for all, nine times the width is three times the size, and more in the MLP.
    growth = fixed.max(0) / fixed.min(0)
    assert (growth > 2.9).all(), growth


WRONG = {
    "--model.init_std.q 1": "unknown part in model.init_std 'q': did you mean 'qk'?",
    "--model.init_std.norm 1": "unknown part in model.init_std 'norm'",
    "--model.init_std.qk -1": "model.init_std.qk is -1: it must be in 0..1000",
    "--model.init_std.qk -1 fan_in": "model.init_std.qk is '-1 fan_in': it must be a number",
    "--model.init_std.qk true": "model.init_std.qk is True: it must be in 0..1000, or 'fan_in'",
    "--model.init_std fanin": "model.init_std is 'fanin': it must be a number, 'fan_in' or",
    "--model.init_std 1,2": "model.init_std is '1,2': it must be a number",
    "--model.embedding_std big": "model.embedding_std is 'big': it must be a number, 'fan_in'",
    "--model.embedding_std.x 1": "model.embedding_std in ",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_mistake_is_one_sentence(line: str) -> None:
    config = str(shipped_configs()["debug_standard"])
    with pytest.raises(ConfigError) as error:
        plan_run(config, line.split(" ", 1), world_size=1)
    assert WRONG[line] in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "words", [["--model.init_std.qk", "0.1"], ["--model.init_std", "{qk=0.1}"]]
)
def test_a_part_on_the_command_line_leaves_the_others_to_the_flavor(words: list[str]) -> None:
    config = str(shipped_configs()["debug_standard"])
    plan = plan_run(config, ["--model.flavor", "table4", *words], world_size=1)
    assert plan.model.shape.init_std == {"qk": 0.1, "v": 0.02, "o": 0.02, "mlp": 0.02, "head": 0.02}


def test_a_checkpoint_does_not_depend_on_how_its_weights_began() -> None:
    """So that a run that began with 0.02 is resumed by a config whose default is another."""
    now = identity(llama_config(WIDE, VARIANTS["frozen_qk"]))
    shape = dataclasses.replace(WIDE, init_std=0.02, embedding_std=0.02)
    assert identity(llama_config(shape, VARIANTS["frozen_qk"])) == now
    assert not [key for key in now if "std" in key and "mixing" not in key]
