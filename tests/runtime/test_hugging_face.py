"""A run that starts from the weights of a Hugging Face Llama, and ends in that format; transformers
is the judge of both."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from mixit_titan.config.checks import check_folder
from mixit_titan.config.run import load_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.data.shards import open_split
from mixit_titan.errors import ConfigError
from mixit_titan.runtime.checkpoint import latest_step
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.runtime.trained import load_trained

from .conftest import SMALL, Runs

transformers = pytest.importorskip("transformers")

SCALED = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
COMMON = {
    **{"vocab_size": 320, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "max_position_embeddings": 32},
}
# Llama 3.2: tied, grouped, scaled, in bfloat16. And one with biases and none of that.
LLAMAS = {
    "llama32": (
        {
            **{"num_key_value_heads": 2, "tie_word_embeddings": True, "rms_norm_eps": 1e-5},
            "rope_parameters": SCALED
            | {"rope_theta": 500000.0, "original_max_position_embeddings": 8192},
        },
        torch.bfloat16,
        "--model.kv_heads 2 --model.tied --model.norm_eps 1e-5 --model.rope_theta 500000.0 "
        "--model.rope_factor 32",
    ),
    "biased": (
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False},
        torch.float32,
        "--model.bias",
    ),
}
# All that a Llama has stays as it is, and the matrices of its first layer are trained.
STACK = "learned-freeze-v-o-mlp-norm attention-freeze-qk-v-o-mlp-norm"
STEPS = 2
ENDS = ["--checkpoint.last_save_in_hf", "--checkpoint.last_save_model_only"]


@pytest.fixture(scope="module")
def trained(runs: Runs) -> Runs:
    """`llama32` and `biased`, each with its queries and keys frozen, and a stack of the first, on
    two ranks."""
    jobs = {}
    for name, (config, dtype, options) in LLAMAS.items():
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**COMMON | config))
        for param in model.parameters():  # biases start at zero, norms at one
            torch.nn.init.normal_(param, std=0.3)
        model.to(dtype).save_pretrained(runs.root / f"{name}_hf")
        source = ["--checkpoint.initial_load_path", str(runs.root / f"{name}_hf")]
        own = [*options.split(), *source, "--checkpoint.initial_load_in_hf"]
        own += [
            "--training.steps",
            str(STEPS),
            "--data.packing",
            "documents",
            "--validator.rows",
            "-1",
        ]
        if name == "llama32":
            jobs["stack"] = (STACK, [*own, "--model.freeze", "embedding,head"])
        jobs[name] = ("frozen_qk", [*own, *ENDS, "--validator.enable", "--validator.freq", "1"])
    runs.train(2, jobs)
    return runs


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "model.safetensors",
            b"[]",
            "model.safetensors cannot be used .*header.*: download it again",
        ),
        ("model.safetensors", None, r"model.safetensors cannot be used \(it is a named pipe"),
        ("config.json", b"[" * 10**5, "has no config.json of a Hugging Face model"),
        ("config.json", b'{"model_type": 3}', "has no config.json of a Hugging Face model"),
        ("config.json", None, "has no config.json of a Hugging Face model"),
    ],
)
def test_a_broken_file_of_a_model_is_one_sentence(
    runs: Runs, tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**COMMON))
    model.save_pretrained(tmp_path / "hf")
    (tmp_path / "hf" / name).unlink()
    if content is None:
        os.mkfifo(tmp_path / "hf" / name)
    else:
        (tmp_path / "hf" / name).write_bytes(content)
    source = ["--checkpoint.initial_load_path", str(tmp_path / "hf")]
    options = [*SMALL, "--data.path", str(runs.data), *source, "--checkpoint.initial_load_in_hf"]
    config = str(shipped_configs()["debug_standard"])
    with pytest.raises(ConfigError, match=message):
        load_run(config, options, world_size=1)


def loss(folder: Path, data: Path) -> float:
    """What transformers says of the validation documents, each cut to 33 tokens."""
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    split = open_split(data, "validation")
    nats = tokens = 0
    for document in range(split.documents):
        (start,), (stop,) = (x.tolist() for x in split.bounds(torch.tensor([document]).numpy()))
        ids = torch.from_numpy(split.read(start, min(stop, start + 33)).astype("int64"))
        with torch.no_grad():
            logits = model(ids[None, :-1]).logits[0]
        nats += F.cross_entropy(logits, ids[1:], reduction="sum").item()
        tokens += len(ids) - 1
    return nats / tokens


@pytest.mark.parametrize("name", LLAMAS)
def test_both_ends_are_the_model_of_transformers(trained: Runs, name: str) -> None:
    lines = read_metrics(trained.folder(name) / "metrics.jsonl")
    ours = {line["step"]: line["validation_loss"] for line in lines if "validation_loss" in line}
    last = trained.folder(name) / "checkpoint" / f"step-{STEPS}"
    assert ours[0] == pytest.approx(loss(trained.root / f"{name}_hf", trained.data), abs=1e-4)
    assert ours[STEPS] == pytest.approx(loss(last, trained.data), abs=1e-4)
    assert ours[STEPS] < ours[0]
    before, after = (
        transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
        for folder in (trained.root / f"{name}_hf", last)
    )
    same = {key for key in before if torch.equal(before[key], after[key])}
    assert same == {key for key in before if ".q_proj." in key or ".k_proj." in key}


def test_a_stack_begins_with_what_it_has_in_common(trained: Runs) -> None:
    """Grouped values are those of each head's group; positions stay at initialization."""
    folder = trained.root / "llama32_hf"
    theirs = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    model = load_trained(trained.folder("stack")).model
    ours, begun = model.state_dict(), model.config.build()
    begun.init_states()
    assert torch.equal(ours["lm_head.weight"], theirs["model.embed_tokens.weight"])
    for layer, values in ((0, "attention.wv"), (1, "attention.qkv_linear.wv")):
        attention = f"model.layers.{layer}.self_attn"
        v = theirs[f"{attention}.v_proj.weight"]
        if layer == 0:  # 4 heads of width 8, 2 groups
            v = v.view(2, 1, 8, 32).expand(2, 2, 8, 32).reshape(32, 32)
        assert torch.equal(ours[f"layers.{layer}.{values}.weight"], v)
        o = theirs[f"{attention}.o_proj.weight"]
        assert torch.equal(ours[f"layers.{layer}.attention.wo.weight"], o)
    q = theirs["model.layers.1.self_attn.q_proj.weight"]
    assert torch.equal(ours["layers.1.attention.qkv_linear.wq.weight"], q)
    same = {key for key, value in begun.state_dict().items() if torch.equal(value, ours[key])}
    assert same == {"tok_embeddings.position_weight"}


def test_a_run_that_ended_so_is_finished_and_cannot_be_extended(trained: Runs) -> None:
    def run(steps: int):  # noqa: ANN202
        config, overrides = (
            str(shipped_configs()["debug_frozen_qk"]),
            ["--data.packing", "documents"],
        )
        overrides += ["--model.bias", "--data.path", str(trained.data), *SMALL, *ENDS]
        overrides += ["--dump_folder", str(trained.folder("biased"))]
        return load_run(config, [*overrides, "--training.steps", str(steps)], world_size=1)

    assert latest_step(run(STEPS)) == STEPS
    check_folder(run(STEPS))
    with pytest.raises(ConfigError, match="no checkpoint to resume from: choose another"):
        check_folder(run(STEPS + 1))


def wrong_llamas(root: Path, folder: Path) -> dict[str, tuple[str, str]]:
    """Options, the folder -> the sentence."""
    other, empty, bare = root / "other", root / "empty", root / "bare"
    for made in (other, empty, bare):
        made.mkdir()
    (other / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    shutil.copy(folder / "config.json", bare)
    fits = LLAMAS["llama32"][2]
    return {
        "shape": (
            f"{folder}",
            "does not fit: model.kv_heads is 4 but the Llama has 2; model.norm_eps",
        ),
        "rope": (
            f"{folder} {fits.replace('--model.rope_factor 32', '')}",
            "does not fit: model.rope_factor is 1.0 but the Llama has 32.0. Set these values in",
        ),
        "kind": (f"{other}", "holds a 'gpt2': only a 'llama' can be loaded"),
        "no folder": (f"{root}/none", "has no config.json of a Hugging Face model"),
        "no weights": (f"{bare} {fits}", "has no \\*.safetensors"),
        "mixing": (
            f"{folder} --model.variant mixit {' '.join(ENDS)}",
            "last_save_in_hf is for variants that attend: transformers has no model for others",
        ),
        "recipe": (
            f"{folder} {fits} --model.variant mixit --model.mixing.linear_scale",
            "does not fit: model.mixing.linear_scale is True but the Llama has False. Set these",
        ),
    }


def test_what_does_not_fit_is_one_sentence(trained: Runs, tmp_path: Path) -> None:
    config = str(shipped_configs()["debug_standard"])
    for options, message in wrong_llamas(tmp_path, trained.root / "llama32_hf").values():
        folder, *rest = options.split()
        overrides = [*SMALL, "--data.path", str(trained.data), *rest]
        overrides += ["--checkpoint.initial_load_in_hf", "--checkpoint.initial_load_path", folder]
        with pytest.raises(ConfigError, match=message) as error:
            load_run(config, overrides, world_size=1)
        assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=r"needs checkpoint\.initial_load_path"):
        overrides = [*SMALL, "--data.path", str(trained.data), "--checkpoint.initial_load_in_hf"]
        only = ["--checkpoint.initial_load_model_only"]
        load_run(config, [*overrides, *only], world_size=1)
