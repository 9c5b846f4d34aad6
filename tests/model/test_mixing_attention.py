"""The mixing attention in a model: forms, compile, recomputation, decoding, casts."""

import dataclasses

import pytest
import torch

from mixit_titan.errors import ConfigError
from mixit_titan.kernels import generated, stored
from mixit_titan.model.build import llama_config
from mixit_titan.model.decoding import Decoder
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.parallelize import SelectiveRecomputation
from mixit_titan.model.recipes import RECIPES
from mixit_titan.model.shapes import FLAVORS
from mixit_titan.model.storage import choose_form, room_for_matrices
from mixit_titan.model.variants import VARIANTS

from .conftest import TINY

FORMS = ["stored", "sharded", "generated"]


def mixit(form: str, recipe: str = "official", **changes: int) -> MixitLlama:
    shape = dataclasses.replace(TINY, **changes)
    config = llama_config(shape, VARIANTS["mixit"], RECIPES[recipe], form=form)
    model = config.build()
    model.init_states()
    return model


@pytest.mark.parametrize("recipe", RECIPES)
def test_forms_give_one_model(recipe: str, tokens: torch.Tensor) -> None:
    packed = torch.cat([torch.arange(9), torch.arange(15)]).unsqueeze(0)
    models = [mixit(form, recipe) for form in FORMS]
    for positions in (None, packed):
        outputs = [model(tokens, positions) for model in models]
        for other in outputs[1:]:
            torch.testing.assert_close(other, outputs[0], atol=1e-5, rtol=1e-5)


def test_a_matrix_is_never_saved(tokens: torch.Tensor) -> None:
    states = [mixit(form).state_dict() for form in FORMS]
    assert states[0].keys() == states[1].keys() == states[2].keys()
    assert not any("inner_attention" in key for key in states[0])
    other = mixit("sharded")
    other.load_state_dict(states[0], strict=True)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("packed", [False, True])
def test_compiled_once_for_all_layers(form: str, packed: bool, tokens: torch.Tensor) -> None:
    """Whole, and with code that does not depend on the layer."""
    torch._dynamo.reset()
    positions = torch.cat([torch.arange(9), torch.arange(15)]).expand(2, 24) if packed else None
    model = mixit(form, layers=12)
    expected = model(tokens, positions)
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    for block in model.layers.values():
        block.compile(backend=counter, fullgraph=True)
    ours = model(tokens, positions)
    torch.testing.assert_close(ours, expected)
    ours.logsumexp(-1).sum().backward()
    assert counter.frame_count == 1


@pytest.mark.parametrize("form", FORMS)
def test_selective_checkpointing_does_not_repeat_the_product(
    form: str, tokens: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = mixit(form)
    calls = []
    kernel = generated if form == "generated" else stored
    original = kernel._mix
    monkeypatch.setattr(kernel, "_mix", lambda *args: calls.append(1) or original(*args))
    SelectiveRecomputation.Config().build(dump_folder="").apply(model)
    model(tokens).logsumexp(-1).sum().backward()
    assert len(calls) == 2 * len(model.layers)  # forward and backward, once each


@pytest.mark.parametrize("form", FORMS)
def test_decoding_gives_the_logits_of_the_whole(form: str, tokens: torch.Tensor) -> None:
    model = mixit(form)
    with torch.no_grad():
        expected = model(tokens)
    decoder = Decoder(model)
    parts = [decoder.step(tokens[:, i:j]) for i, j in ((0, 7), (7, 8), (8, 9), (9, 24))]
    torch.testing.assert_close(torch.cat(parts, dim=1), expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(ConfigError, match="25 tokens is longer than the model's 24"):
        decoder.step(tokens[:, :1])


def test_a_cast_to_bfloat16_keeps_the_row_means() -> None:
    model = mixit("generated")
    inner = model.layers["0"].attention.inner_attention
    means = inner.means.clone()
    model.to(torch.bfloat16)
    assert torch.equal(inner.means, means)
    out = inner(torch.ones(1, 24, 4, 8, dtype=torch.bfloat16))
    assert (out[:, :, 1:].float() - 1).abs().max() < 0.01  # row sums of the random heads


def test_a_token_sees_all_others_without_causality(tokens: torch.Tensor) -> None:
    recipe = dataclasses.replace(RECIPES["paper"], causal=False)
    for form in FORMS:
        model = llama_config(TINY, VARIANTS["mixit"], recipe, form=form).build()
        model.init_states()
        changed = tokens.clone()
        changed[:, 20] = (changed[:, 20] + 1) % 50
        with torch.no_grad():
            assert (model(tokens) - model(changed)).abs().amax(-1).min() > 0


def test_auto_stores_what_fits() -> None:
    assert choose_form("auto", FLAVORS["160m"], "bfloat16") == "stored"
    assert choose_form("auto", FLAVORS["8b"], "bfloat16") == "generated"
    assert choose_form("auto", FLAVORS["8b"], "bfloat16", tensor_parallel=4) == "stored"
    assert choose_form("sharded", FLAVORS["8b"], "bfloat16") == "sharded"
    packed = 32 * 32 * 136 * 128**2 * 2
    assert choose_form("auto", FLAVORS["8b"], "bfloat16", room=packed) == "stored"
    assert choose_form("auto", FLAVORS["8b"], "bfloat16", room=packed - 1) == "generated"
    assert choose_form("auto", FLAVORS["8b"], "float32", room=2 * packed - 1) == "generated"
    assert room_for_matrices(10 * 2**30) == 5 * 2**30 and room_for_matrices(-1) == 0
