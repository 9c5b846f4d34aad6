"""Our models against outputs and gradients of the paper authors' own code.

Reads every *.npz in the folder named by MIXIT_TITAN_GOLDEN (default: ../shared/golden).
"""

import dataclasses
import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mixit_titan.kernels.mixing import MatrixSpec, mixing_matrix
from mixit_titan.kernels.stored import keep
from mixit_titan.model.build import llama_config
from mixit_titan.model.freezing import freeze
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.recipes import Recipe
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import read_stack

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("MIXIT_TITAN_GOLDEN", ROOT / ".." / "shared" / "golden"))
FILES = sorted(FOLDER.glob("*.npz"))
MIXING_FILES = [file for file in FILES if file.stem.startswith("mixing_")]
STACKED_FILES = [file for file in FILES if file.stem.startswith(("mixing_", "vanilla_"))]

pytestmark = pytest.mark.skipif(not FILES, reason=f"no golden files in {FOLDER}")

VARIANT = {
    "vanilla": "standard",
    "frozen_qk": "frozen_qk",
    "frozen_mlp": "frozen_mlp",
    "mixing": "mixit",
}
MODULE = {
    "self_attn.q_proj.linear": "attention.qkv_linear.wq",
    "self_attn.k_proj.linear": "attention.qkv_linear.wk",
    "self_attn.v_proj.linear": "attention.qkv_linear.wv",
    "self_attn.o_proj.linear": "attention.wo",
    "mlp.gate_proj.linear": "feed_forward.w1",
    "mlp.up_proj.linear": "feed_forward.w3",
    "mlp.down_proj.linear": "feed_forward.w2",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
}


def our_name(name: str, mixing: bool) -> str:
    name = name.replace("model.wpe.weight", "tok_embeddings.position_weight")
    name = name.replace("model.embed_tokens.", "tok_embeddings.")
    name = name.replace("lm_head.linear.", "lm_head.").removeprefix("model.")
    for theirs, ours in MODULE.items():
        name = name.replace(theirs, ours)
    return name.replace("qkv_linear.wv", "wv") if mixing else name


def golden_model(golden: dict, config: dict, written: str | None = None) -> MixitLlama:
    """Of the variant, or of a stack as it is `written`."""
    mixing = config["variant"] == "mixing"
    shape = Shape(
        width=config["dim"],
        layers=config["n_layers"],
        heads=config["n_heads"],
        kv_heads=config["n_kv_heads"],
        hidden=config["hidden_dim"],
        vocab=config["vocab_size"],
        seq_len=config["seq_len"],
        bias=config["attention_bias"],
        norm_eps=config["rms_norm_eps"],
        rope_theta=10000.0 if mixing else config["rope"]["theta"],
    )
    recipe = Recipe(
        residual=config["configured_skip_scaling"] if mixing else "plain",
        activation="leaky_relu" if mixing else "silu",
        activation_c=config["activation_cminus"],
        linear_scale=mixing,
        base_width=config["base_hidden_size"],
        base_hidden=config["base_intermediate_size"],
        depth_alpha=config["depth_alpha"],
        base_layers=config["base_num_hidden_layers"],
        std="heads",
        sink_head=True,
    )
    stack = read_stack(written or VARIANT[config["variant"]], shape.layers)
    model = llama_config(shape, stack, recipe).build()
    model.init_states()
    state = {
        our_name(key.removeprefix("param/"), mixing): torch.from_numpy(golden[key])
        for key in golden
        if key.startswith("param/")
    }
    for layer in range(shape.layers):
        if stack.pair(layer).mixer == "learned":
            theirs = torch.from_numpy(golden[f"attn_weights/{layer}"])
            state[f"layers.{layer}.attention.inner_attention.weight"] = theirs
    model.load_state_dict(state, strict=True)
    for layer, block in enumerate(model.layers.values()):
        if stack.pair(layer).mixer == "mixing":
            theirs = torch.from_numpy(golden[f"attn_weights/{layer}"])
            inner = block.attention.inner_attention
            assert inner.matrix.shape[:2] == theirs.shape[:2]
            inner.matrix = keep(theirs.clone(), inner.spec, torch.float32)
    freeze(model, stack)
    return model


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def golden(request: pytest.FixtureRequest) -> dict:
    with np.load(request.param) as file:
        return dict(file)


def test_outputs_loss_and_gradients(golden: dict) -> None:
    config = json.loads(str(golden["config_json"]))
    mixing = config["variant"] == "mixing"
    model = golden_model(golden, config)
    check(golden, model, mixing)
    frozen = {our_name(name, mixing) for name in json.loads(str(golden["frozen_names_json"]))}
    assert frozen == {name for name, p in model.named_parameters() if not p.requires_grad}


# A window as long as the sequence is attention, and a learned matrix that is theirs is mixing; what
# is frozen changes no other gradient. Layers: 0 and 1.
HYBRIDS = {
    "vanilla": {
        "attention attention": set(),
        "frozen_qk@last": {f"layers.1.attention.qkv_linear.w{x}" for x in "qk"},
        "window@first": set(),
        "window-freeze-v frozen_mlp": {
            "layers.0.attention.qkv_linear.wv",
            *(f"layers.1.feed_forward.w{n}" for n in (1, 2, 3)),
        },
    },
    "mixing": {
        "mixing*2": set(),
        "mixit learned@last": set(),
        "learned-freeze-matrix mixing-freeze-o": {
            "layers.0.attention.inner_attention",
            "layers.1.attention.wo",
        },
    },
}


@pytest.mark.parametrize("golden", STACKED_FILES, ids=lambda path: path.stem, indirect=True)
def test_hybrids_give_the_outputs_and_gradients_of_what_they_amount_to(golden: dict) -> None:
    config = json.loads(str(golden["config_json"]))
    for written, frozen in HYBRIDS[config["variant"]].items():
        model = golden_model(golden, config, written)
        found = {n.rpartition(".")[0] for n, p in model.named_parameters() if not p.requires_grad}
        assert found == frozen
        check(golden, model, config["variant"] == "mixing", frozen)


def check(golden: dict, model: MixitLlama, mixing: bool, frozen: Collection[str] = ()) -> None:
    """Logits, loss and gradients are theirs, but for modules that are `frozen`."""
    ids = torch.from_numpy(golden["input_ids"])
    logits = model(ids)
    assert (logits.detach() - torch.from_numpy(golden["logits"])).abs().max() < 2e-5

    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert abs(loss.item() - float(golden["loss"])) < 1e-5
    loss.backward()

    theirs = {our_name(k[5:], mixing): golden[k] for k in golden if k.startswith("grad/")}
    theirs = {n: grad for n, grad in theirs.items() if n.rpartition(".")[0] not in frozen}
    ours = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    ours = {name: grad for name, grad in ours.items() if "inner_attention" not in name}  # learned
    assert ours.keys() == theirs.keys()
    for name, grad in theirs.items():
        error = np.abs(ours[name].numpy() - grad).max() / np.abs(grad).max()
        assert error < 1e-4, f"gradient of {name}: relative error {error:.1e}"


@pytest.mark.parametrize("golden", MIXING_FILES, ids=lambda path: path.stem, indirect=True)
def test_matrix_from_their_noise(golden: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their noise, deviation included, in place of what is drawn."""
    config = json.loads(str(golden["config_json"]))
    identity = config["depth_alpha"] == 0
    spec = dataclasses.replace(matrix_spec(config), identity=identity, sink_head=False)
    heads = range(1, config["n_heads"])  # head 0 is the sink

    def their_noise(*drawn: Any) -> torch.Tensor:
        _, _, layer, _, rows, length = drawn
        noise = torch.from_numpy(golden[f"mixing_noise/{layer}"])
        return noise[heads.start :, rows, :length]

    monkeypatch.setattr("mixit_titan.kernels.mixing.draw_noise", their_noise)
    for layer in range(config["n_layers"]):
        theirs = torch.from_numpy(golden[f"attn_weights/{layer}"])[heads.start :]
        ours = mixing_matrix(spec, layer, heads)
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


@pytest.mark.parametrize("golden", MIXING_FILES, ids=lambda path: path.stem, indirect=True)
def test_sink_head(golden: dict) -> None:
    spec = matrix_spec(json.loads(str(golden["config_json"])))
    theirs = torch.from_numpy(golden["attn_weights/0"])[0]
    assert torch.equal(mixing_matrix(spec, 0, [0])[0], theirs)


def matrix_spec(config: dict) -> MatrixSpec:
    return MatrixSpec(
        seed=0,
        length=config["seq_len"],
        std_low=1,
        std_high=1,
        identity=True,
        sink_head=True,
        causal=True,
    )
