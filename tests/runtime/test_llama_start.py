"""The weights of a Hugging Face Llama, written by hand, as the start of stacks."""

import dataclasses
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mixit_titan.errors import ConfigError
from mixit_titan.model.build import llama_config
from mixit_titan.model.hugging_face import HuggingFaceAdapter, differences_to_llama, hf_config
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.recipes import RECIPES
from mixit_titan.model.stack import read_stack
from mixit_titan.runtime.llama_start import read_llama
from mixit_titan.runtime.tensor_reader import explained
from tests.model.conftest import TINY, build

SHAPE = dataclasses.replace(TINY, kv_heads=2, bias=True)
WIDTH, HEAD, VALUES = 32, 8, 16
SIZES = {
    "self_attn.q_proj": (WIDTH, WIDTH),
    "self_attn.k_proj": (VALUES, WIDTH),
    "self_attn.v_proj": (VALUES, WIDTH),
    "self_attn.o_proj": (WIDTH, WIDTH),
    "mlp.gate_proj": (64, WIDTH),
    "mlp.up_proj": (64, WIDTH),
    "mlp.down_proj": (WIDTH, 64),
}
NORMS = ("input_layernorm", "post_attention_layernorm")
PLAIN = {"o_proj": "attention.wo", "gate_proj": "feed_forward.w1", "up_proj": "feed_forward.w3"}
PLAIN |= {"down_proj": "feed_forward.w2", "input_layernorm": "attention_norm"}
PLAIN |= {"post_attention_layernorm": "ffn_norm"}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, torch.Tensor]]:
    folder, generator = tmp_path_factory.mktemp("llama"), torch.Generator().manual_seed(0)
    sizes = {"model.embed_tokens.weight": (50, WIDTH), "lm_head.weight": (50, WIDTH)}
    sizes["model.norm.weight"] = (WIDTH,)
    for layer in range(2):
        start = f"model.layers.{layer}."
        sizes |= {f"{start}{name}.weight": (WIDTH,) for name in NORMS}
        sizes |= {f"{start}{name}.weight": size for name, size in SIZES.items()}
        sizes |= {f"{start}{name}.bias": size[:1] for name, size in SIZES.items()}
    weights = {name: torch.randn(size, generator=generator) for name, size in sizes.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder, weights


def begun(stack: str, folder: Path) -> MixitLlama:
    model = build(stack, shape=SHAPE)
    read = read_llama(HuggingFaceAdapter(model.config), str(folder), model.state_dict())
    model.load_state_dict(read)
    return model


def spread(values: torch.Tensor) -> torch.Tensor:
    """Heads 0 and 1 have those of the first group, 2 and 3 those of the second."""
    first, second = values[:HEAD], values[HEAD:]
    return torch.cat([first, first, second, second])


@pytest.mark.parametrize("stack", ["mixit standard", "mixit", "learned window", "standard"])
def test_each_layer_takes_what_it_has_in_common(stack: str, llama: tuple[Path, dict]) -> None:
    folder, theirs = llama
    model, untouched = begun(stack, folder), build(stack, shape=SHAPE).state_dict()
    ours, pairs = model.state_dict(), model.config.stack.fill(2)
    expected = {
        "tok_embeddings.weight": theirs["model.embed_tokens.weight"],
        "norm.weight": theirs["model.norm.weight"],
        "lm_head.weight": theirs["lm_head.weight"],
    }
    for layer, pair in enumerate(pairs):
        for name, value in theirs.items():
            if not name.startswith(f"model.layers.{layer}."):
                continue
            module, kind = name.split(".")[-2:]
            start = f"layers.{layer}."
            if module in PLAIN:
                expected[f"{start}{PLAIN[module]}.{kind}"] = value
            elif pair.attends:
                expected[f"{start}attention.qkv_linear.w{module[0]}.{kind}"] = value
            elif module == "v_proj":
                expected[f"{start}attention.wv.{kind}"] = spread(value)
    kept = {n for n in ours if "position_weight" in n or "inner_attention" in n}
    assert ours.keys() == expected.keys() | kept
    for name, value in ours.items():
        assert torch.equal(value, untouched[name] if name in kept else expected[name]), name
    assert bool(kept) == (stack != "standard")


def test_the_log_says_in_one_line_what_stays_at_initialization(
    llama: tuple[Path, dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("mixit_titan.runtime.llama_start.logger.info", said.append)
    begun("learned", llama[0])
    begun("standard", llama[0])
    assert said == [
        f"{llama[0]} has no counterpart for these, which stay at initialization: "
        "tok_embeddings.position_weight (1), layers.*.attention.inner_attention.weight (2)"
    ]


def test_values_of_another_width_are_one_sentence(llama: tuple[Path, dict], tmp_path: Path) -> None:
    wrong = llama[1] | {"model.layers.0.self_attn.v_proj.weight": torch.zeros(12, WIDTH)}
    save_file(wrong, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with (
        pytest.raises(ConfigError, match=r"cannot be loaded: .*v_proj") as error,
        explained(tmp_path),
    ):
        begun("mixit", tmp_path)
    assert "\n" not in str(error.value)


def test_what_must_fit_depends_on_the_layers() -> None:
    """Rotary embeddings and grouped keys are those of layers that attend; a Llama has no scales."""
    theirs = hf_config(llama_config(SHAPE, read_stack("standard", 2)), None)
    theirs |= {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    plain = dataclasses.replace(SHAPE, kv_heads=None)

    def different(stack: str, recipe: str = "paper") -> list[str]:
        chosen = llama_config(plain, read_stack(stack, 2), RECIPES[recipe])
        return [said.split(" is ")[0] for said in differences_to_llama(theirs, chosen)]

    assert different("mixit") == []
    assert different("mixit standard") == ["model.kv_heads", "model.rope_theta"]
    assert different("mixit", "official") == [
        "model.mixing.activation",
        "model.mixing.residual",
        "model.mixing.linear_scale",
    ]
