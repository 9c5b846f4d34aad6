"""Maps and states are those of the real forward."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from mixit_titan.analysis.hooks import attention_maps, hidden_states
from mixit_titan.kernels.mixing import mixing_matrix
from mixit_titan.model.llama import MixitLlama
from tests.analysis.conftest import LENGTH
from tests.runtime.conftest import Runs

Build = Callable[..., MixitLlama]


def layer_products(model: MixitLlama, tokens: torch.Tensor) -> list[tuple[np.ndarray, np.ndarray]]:
    """Values and output of each layer's mixing of tokens, as the layer itself had them."""
    seen: list[tuple[np.ndarray, np.ndarray]] = []

    def keep(_module: nn.Module, args: tuple, out: torch.Tensor) -> None:
        seen.append((args[-1].numpy(), out.numpy()))  # values come last: (q, k, v), or v alone

    layers = [block.attention.inner_attention for block in model.layers.values()]
    hooks = [layer.register_forward_hook(keep) for layer in layers]
    with torch.no_grad():
        model(tokens)
    for hook in hooks:
        hook.remove()
    return seen


MODELS = {
    "standard": {},
    "grouped": {"kv_heads": 2},
    "mixit": {},
    "mixit official": {"recipe": "official"},
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("length", [LENGTH, LENGTH - 5])
def test_maps_times_values_are_what_the_layer_gives(
    build: Build, tokens: torch.Tensor, name: str, length: int
) -> None:
    variant = "mixit" if name.startswith("mixit") else "standard"
    model = build(variant, **MODELS[name])
    tokens = tokens[:, :length]
    products = layer_products(model, tokens)
    maps = attention_maps(model, tokens)
    assert len(maps) == len(products) == 2
    for maps_BNLL, (v_BLKH, out_BLNH) in zip(maps, products, strict=True):
        v_BLNH = np.repeat(v_BLKH, out_BLNH.shape[2] // v_BLKH.shape[2], axis=2)
        expected = np.einsum("bnij,bjnh->binh", maps_BNLL.numpy(), v_BLNH)
        np.testing.assert_allclose(out_BLNH, expected, atol=2e-5)
        assert np.abs(np.triu(maps_BNLL.numpy(), 1)).max() == 0
        rows = maps_BNLL.sum(-1)
        if name != "mixit official":  # whose head 0 gives its first row a half only
            np.testing.assert_allclose(rows, np.ones_like(rows), atol=1e-5)


def test_softmax_maps_are_positive_and_depend_on_the_input(
    build: Build, tokens: torch.Tensor
) -> None:
    first, second = attention_maps(build("standard"), tokens)[1][:2]
    assert (first >= 0).all()
    assert (first - second).abs().max() > 0.1


def test_maps_of_mixit_are_its_mixing_matrices(build: Build, tokens: torch.Tensor) -> None:
    model = build("mixit", recipe="official")
    for layer, maps_BNLL in enumerate(attention_maps(model, tokens)):
        spec = model.config.layers[layer].attention.inner_attention.spec
        expected = mixing_matrix(spec, layer, range(4))
        for maps_NLL in maps_BNLL:
            torch.testing.assert_close(maps_NLL, expected, atol=1e-6, rtol=0)


def test_states_lead_to_the_logits(build: Build, tokens: torch.Tensor) -> None:
    for variant in ("standard", "mixit"):
        model = build(variant, layers=3)
        states = hidden_states(model, tokens)
        assert len(states) == 4
        with torch.no_grad():
            logits = model.lm_head(model.norm(states[-1]))
            torch.testing.assert_close(logits, model(tokens))
            block = model.layers["1"]
            torch.testing.assert_close(states[2], block(states[1], None))
        if variant == "standard":
            torch.testing.assert_close(states[0], model.tok_embeddings.weight[tokens])


def test_looking_leaves_nothing_behind(build: Build, tokens: torch.Tensor) -> None:
    model = build("standard")
    hidden_states(model, tokens), attention_maps(model, tokens)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_a_checkpoint_of_two_ranks_with_grouped_heads(uncommon_runs: Runs) -> None:
    from mixit_titan.analysis.analyzed_run import load_analyzed_run

    subject = load_analyzed_run(uncommon_runs.folder("llama"), text=None, count=2)
    assert subject.model.config.shape.kv_heads == 2
    assert subject.sequences.source == "the run's validation data"
    tokens = subject.sequences.tokens_NL
    products = layer_products(subject.model, tokens)
    for maps, (v_BLKH, out) in zip(attention_maps(subject.model, tokens), products, strict=True):
        v = np.repeat(v_BLKH, 2, axis=2)
        np.testing.assert_allclose(out, np.einsum("bnij,bjnh->binh", maps.numpy(), v), atol=1e-5)
