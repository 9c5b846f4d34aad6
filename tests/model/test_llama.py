import dataclasses
import re

import pytest
import torch

from mixit_titan.errors import ConfigError
from mixit_titan.kernels.mixing import mixing_matrix
from mixit_titan.model.build import llama_config
from mixit_titan.model.freezing import freeze
from mixit_titan.model.stack import uniform
from mixit_titan.model.variants import VARIANTS

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


LAYER = {"weight", "bias"}
FROZEN_ALONE = {
    "qk": {f"attention.qkv_linear.{w}.{k}" for w in ("wq", "wk") for k in LAYER},
    "v": {f"attention.qkv_linear.wv.{k}" for k in LAYER},
    "o": {f"attention.wo.{k}" for k in LAYER},
    "mlp": {f"feed_forward.{w}.{k}" for w in ("w1", "w2", "w3") for k in LAYER},
    "norm": {"attention_norm.weight", "ffn_norm.weight", "norm.weight"},
    "embedding": {"tok_embeddings.weight", "tok_embeddings.position_weight"},
    "head": {"lm_head.weight"},
}


@pytest.mark.parametrize("mixer", ["attention", "mixing"])
@pytest.mark.parametrize("part", FROZEN_ALONE)
def test_each_part_can_be_frozen_alone(part: str, mixer: str) -> None:
    if (part, mixer) == ("qk", "mixing"):
        with pytest.raises(ConfigError, match="the mixing mixer has no queries and keys"):
            uniform(mixer, (part,))
        return
    expected = FROZEN_ALONE[part]
    if mixer == "mixing":
        expected = {name.replace("qkv_linear.", "") for name in expected}
    else:
        expected = expected - {"tok_embeddings.position_weight"}
    variant = uniform(mixer, (part,))
    model = llama_config(dataclasses.replace(TINY, bias=True), variant).build()
    freeze(model, variant)
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert {re.sub(r"^layers\.\d+\.", "", name) for name in frozen} == expected
    layers = {name.split(".")[1] for name in frozen if name.startswith("layers.")}
    assert layers in ({"0", "1"}, set())


def test_bfloat16_does_not_swallow_the_noise_on_the_diagonal() -> None:
    """1 + w in bfloat16 is 1 for the small w of a long sequence, so the 1 is kept apart."""
    config = llama_config(dataclasses.replace(TINY, seq_len=512), VARIANTS["mixit"])
    inner = config.layers[0].attention.inner_attention
    exact = mixing_matrix(inner.spec, 0, range(4))
    inner.dtype = "bfloat16"
    mixing = inner.build()
    mixing.init_states()
    eye = torch.eye(512)
    error = (mixing.matrix[..., :512].float().tril() + eye - exact).abs()
    assert (error <= (exact - eye).abs() / 256 + 1e-7).all()
    out = mixing(torch.ones(1, 512, 4, 8, dtype=torch.bfloat16))
    assert (out.float() - 1).abs().max() < 0.01  # row sums


def test_a_rule_that_matches_no_parameter_fails() -> None:
    model = build("mixit")
    with pytest.raises(ConfigError, match="'qk', which matches no parameter"):
        freeze(model, VARIANTS["frozen_qk"])


def test_grouped_keys_are_shared_by_their_queries(tokens: torch.Tensor) -> None:
    """Two key heads for four query heads: as four key heads, each given twice."""
    grouped = build("standard", shape=dataclasses.replace(TINY, kv_heads=2, init_std=0.3))
    full = build("standard", shape=dataclasses.replace(TINY, init_std=0.3))
    state = grouped.state_dict()
    for name, value in state.items():
        if ".wk." in name or ".wv." in name:
            state[name] = value.unflatten(0, (2, 8)).repeat_interleave(2, dim=0).flatten(0, 1)
    full.load_state_dict(state)
    with torch.no_grad():
        torch.testing.assert_close(grouped(tokens), full(tokens))


def test_a_tied_head_is_the_embedding(tokens: torch.Tensor) -> None:
    shape = dataclasses.replace(TINY, tied=True)
    tied, untied = build("standard", shape=shape), build("standard")
    assert tied.tok_embeddings.weight is tied.lm_head.weight
    assert len(list(tied.parameters())) == len(list(untied.parameters())) - 1
    untied.load_state_dict(tied.state_dict())
    for model in (tied, untied):
        model(tokens).logsumexp(-1).mean().backward()
    # One weight, used twice: its gradient is the sum of both uses.
    both = untied.tok_embeddings.weight.grad + untied.lm_head.weight.grad
    torch.testing.assert_close(tied.lm_head.weight.grad, both)
    with pytest.raises(ConfigError, match="freeze both of them or neither"):
        llama_config(shape, uniform("attention", ("head",)))


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
