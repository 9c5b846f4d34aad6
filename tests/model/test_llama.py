import dataclasses

import pytest
import torch

from mixit_titan.errors import ConfigError
from mixit_titan.model.build import llama_config
from mixit_titan.model.freezing import freeze
from mixit_titan.model.variants import VARIANTS, Variant

from .conftest import MODELS, TINY, build


@pytest.mark.parametrize(("variant", "recipe"), MODELS)
def test_a_token_changes_no_output_before_it(
    variant: str, recipe: str, tokens: torch.Tensor
) -> None:
    model = build(variant, recipe)
    changed = tokens.clone()
    changed[:, 10] = (changed[:, 10] + 1) % 50
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :10], after[:, :10])
    assert (before[:, 10:] - after[:, 10:]).abs().amax(-1).min() > 0  # and every one from it on


@pytest.mark.parametrize(("variant", "recipe"), MODELS)
def test_a_shorter_sequence_is_a_prefix(variant: str, recipe: str, tokens: torch.Tensor) -> None:
    model = build(variant, recipe)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens[:, :7]), model(tokens)[:, :7])


@pytest.mark.parametrize("variant", ["standard", "mixit"])
def test_a_longer_sequence_is_refused(variant: str) -> None:
    with pytest.raises(ConfigError, match="25 tokens is longer than the model's 24"):
        build(variant)(torch.zeros(1, 25, dtype=torch.int64))


@pytest.mark.parametrize("variant", VARIANTS)
def test_only_the_parts_that_train_get_gradients(variant: str, tokens: torch.Tensor) -> None:
    model = build(variant)
    freeze(model, VARIANTS[variant])
    model(tokens).square().mean().backward()
    expected = {
        "standard": (),
        "mixit": (),
        "frozen_qk": (".wq.", ".wk."),
        "frozen_mlp": (".feed_forward.",),
        "random": ("layers.", "norm."),
    }[variant]
    for name, param in model.named_parameters():
        assert (param.grad is None) == any(mark in name for mark in expected), name


@pytest.mark.parametrize("part", ["qk", "v", "o", "mlp", "norm", "embedding", "head"])
def test_each_part_can_be_frozen_alone(part: str) -> None:
    biased = dataclasses.replace(TINY, bias=True)
    for mixer in ("attention",) if part == "qk" else ("attention", "mixing"):
        variant = Variant(mixer=mixer, frozen=(part,))
        model = llama_config(biased, variant).build()
        freeze(model, variant)
        frozen = [p for p in model.parameters() if not p.requires_grad]
        assert 0 < len(frozen) < len(list(model.parameters()))


def test_a_rule_that_matches_no_parameter_fails() -> None:
    model = build("mixit")
    with pytest.raises(ConfigError, match="'qk', which matches no parameter"):
        freeze(model, VARIANTS["frozen_qk"])


def test_grouped_keys_and_tied_head(tokens: torch.Tensor) -> None:
    shape = dataclasses.replace(TINY, kv_heads=2, tied=True)
    model = build("standard", shape=shape)
    assert model.layers["0"].attention.qkv_linear.wk.weight.shape == (16, 32)
    assert model.tok_embeddings.weight is model.lm_head.weight
    with torch.no_grad():
        assert model(tokens).std() > 0
    with pytest.raises(ConfigError, match="freeze both of them or neither"):
        llama_config(shape, Variant(mixer="attention", frozen=("head",)))


def cosine_through_depth(variant: str) -> float:
    """Mean cosine between hidden states of different tokens after 32 random layers of a mixer."""
    # The weights of a layer keep the variance of their input.
    shape = dataclasses.replace(
        TINY, width=128, layers=32, heads=8, hidden=2, seq_len=64, init_std=128**-0.5
    )
    model = build(variant, shape=shape)
    tokens = torch.randint(0, 50, (4, 64), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        x = model.tok_embeddings(tokens)
        for block in model.layers.values():
            x = block.attention(block.attention_norm(x), None)
    unit = torch.nn.functional.normalize(x, dim=-1)
    different = tokens[:, :, None] != tokens[:, None, :]
    return float((unit @ unit.transpose(1, 2))[different].mean())


def test_mixing_keeps_tokens_apart_where_random_attention_joins_them() -> None:
    """The point of Theorem 2.1: no collapse to rank one through 32 layers."""
    assert cosine_through_depth("mixit") < 0.2
    assert cosine_through_depth("standard") > 0.9
