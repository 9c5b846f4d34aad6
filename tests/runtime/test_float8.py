"""Training with float8, which torchao emulates on a CPU."""

import importlib.util
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.runtime.trained import load_trained
from tests.forkserver import Forkserver

from .conftest import STEPS, Runs
from .test_capture import captured

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torchao") is None, reason="torchao is not installed"
)
FLOAT8 = ["--quantize.recipe", "rowwise", "--quantize.emulate"]
VARIANTS = ("frozen_qk", "frozen_mlp", "mixit")


def assert_follows(ours: list[float], expected: list[float]) -> None:
    """Close to the losses of float32, and not the same: it was rounded."""
    assert len(ours) == len(expected) == STEPS
    differences = [abs(a - b) for a, b in zip(ours, expected, strict=True)]
    assert 0 < max(differences) < 0.03, differences


BF16 = ["--training.mixed_precision_param", "bfloat16"]
TENSOR = ["--parallelism.tensor_parallel_degree", "2"]
ON_TWO_RANKS = {
    "frozen_mlp_float8_2": ("frozen_mlp", FLOAT8),
    "frozen_mlp_float8_resident": ("frozen_mlp", [*FLOAT8, "--fsdp.frozen", "resident"]),
    "frozen_qk_float8_tensor": ("frozen_qk", [*FLOAT8, *TENSOR]),
    "mixit_float8_tensor": ("mixit", [*FLOAT8, *TENSOR]),
    "frozen_mlp_float8_bf16": ("frozen_mlp", [*FLOAT8, *BF16]),
}


@pytest.fixture(scope="module")
def float8(runs: Runs) -> Runs:
    runs.train(1, {f"{name}_float8": (name, FLOAT8) for name in VARIANTS})
    runs.train(2, ON_TWO_RANKS)
    return runs


def test_the_loss_follows_that_of_float32(float8: Runs) -> None:
    jobs = {f"{name}_float8": name for name in VARIANTS}
    jobs |= {name: variant for name, (variant, _) in ON_TWO_RANKS.items()}
    for name, variant in jobs.items():
        assert_follows(float8.losses(name), float8.losses(variant))


def test_resident_weights_give_the_same_losses(float8: Runs) -> None:
    assert float8.losses("frozen_mlp_float8_resident") == float8.losses("frozen_mlp_float8_2")


@pytest.mark.parametrize("variant", VARIANTS)
def test_checkpoints_are_those_of_the_same_model(float8: Runs, variant: str) -> None:
    """The same names; frozen weights are the same bits as without float8, where they are those of
    initialization, and all others were trained."""
    ours = load_trained(float8.folder(f"{variant}_float8")).model.state_dict()
    plain = load_trained(float8.folder(variant)).model.state_dict()
    assert list(ours) == list(plain)
    frozen = {"frozen_qk": (".wq.", ".wk."), "frozen_mlp": ("feed_forward",), "mixit": ()}[variant]
    same = {name for name in ours if torch.equal(ours[name], plain[name])}
    matrices = {name for name in ours if name.endswith((".weight", ".bias"))}
    assert same & matrices == {n for n in matrices if any(part in n for part in frozen)}


def test_weights_are_kept_as_without_it(float8: Runs) -> None:
    """A checkpoint shows what there is: bfloat16 where frozen, float32 where trained."""
    checkpoint = str(float8.folder("frozen_mlp_float8_bf16") / "checkpoint" / f"step-{STEPS}")
    saved = dcp.FileSystemReader(checkpoint).read_metadata().state_dict_metadata
    weights = {k: v for k, v in saved.items() if k.endswith("weight") and "optimizer" not in k}
    assert len(weights) > 10
    for name, described in weights.items():
        expected = torch.bfloat16 if "feed_forward" in name else torch.float32
        assert described.properties.dtype == expected, name
    assert not any("feed_forward" in key for key in saved.keys() - weights.keys())


def test_the_counted_flops_are_those_of_the_model(float8: Runs) -> None:
    lines = [
        read_metrics(float8.folder(name) / "metrics.jsonl")[-1]
        for name in ("frozen_qk", "frozen_qk_float8")
    ]
    per_token = [line["tflops_per_rank"] / line["tokens_per_s"] for line in lines]
    assert per_token[0] == pytest.approx(per_token[1], rel=1e-3)
    assert not any("mfu_percent" in line for line in lines)


def test_a_run_without_it_can_be_resumed_with_it(float8: Runs) -> None:
    until_10 = ["--training.steps", "10", "--lr_scheduler.total_steps", str(STEPS)]
    float8.train(1, {"mixed": ("frozen_qk", until_10)})
    float8.train(1, {"mixed": ("frozen_qk", FLOAT8)})
    losses, plain = float8.losses("mixed"), float8.losses("frozen_qk")
    assert losses[:10] == plain[:10]
    assert_follows(losses, plain)


def test_a_resumed_run_gives_the_same_bits(float8: Runs) -> None:
    until_10 = [*FLOAT8, "--training.steps", "10", "--lr_scheduler.total_steps", str(STEPS)]
    float8.train(1, {"float8_cut": ("mixit", until_10)})
    float8.train(1, {"float8_cut": ("mixit", FLOAT8)})
    assert float8.losses("float8_cut") == float8.losses("mixit_float8")


def test_its_forward_and_backward_can_be_captured(
    runs: Runs, tmp_path: Path, forkserver: Forkserver
) -> None:
    """Scales are made on the device: the host asks for none of them."""
    words = [*FLOAT8, "--data.packing", "documents", "--activation_checkpoint.mode", "selective"]
    assert captured("debug_frozen_qk", words, runs, tmp_path, forkserver) == ""
