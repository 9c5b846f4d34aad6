"""CUDA graphs, which torchtitan uses on every GPU: the settings of the shipped configs, at a small
size."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mixit_titan.config.shipped import shipped_configs
from tests.forkserver import Forkserver
from tests.runtime.capture import RANKS, READS, NotCapturable, Stream, capture, train_captured
from tests.runtime.conftest import SMALL, Runs

COMMON = ["--training.steps", "3", "--training.local_batch_size", "2"]
COMMON += ["--training.global_batch_size", str(2 * RANKS), "--lr_scheduler.warmup_steps", "1"]
VALIDATED = " --validator.enable --validator.freq 1 --validator.rows 8"
DOCUMENTS = " --data.packing documents"
# A variant, and settings. Rows hold several documents, but with DOCUMENTS.
SETTINGS = [
    "standard --loss.num_chunks 8",
    "standard --activation_checkpoint.mode full",
    "standard --training.global_batch_size 32",
    "frozen_qk --activation_checkpoint.mode selective --loss.num_chunks 8" + VALIDATED,
    "frozen_mlp --fsdp.frozen resident" + VALIDATED,
    "random" + VALIDATED,
    "mixit --model.mixing.storage generated --model.tied --loss.num_chunks 8"
    " --activation_checkpoint.mode full" + VALIDATED,
    "mixit --activation_checkpoint.mode selective --loss.num_chunks 8" + DOCUMENTS + VALIDATED,
    "mixit --model.mixing.storage stored --training.global_batch_size 32" + VALIDATED,
    "mixit --model.mixing.storage sharded" + VALIDATED,
    "mixit --model.mixing.storage sharded" + DOCUMENTS,
    "mixit --model.mixing.recipe official --parallelism.data_parallel_replicate_degree 2"
    + VALIDATED,
    "mixit --parallelism.tensor_parallel_degree 2 --training.global_batch_size 8" + VALIDATED,
    "mixit --training.on_bad_step skip --training.spike 6.0 --training.global_batch_size 32"
    + VALIDATED,
    "frozen_mlp --optimizer.name Muon --parallelism.tensor_parallel_degree 2"
    " --training.global_batch_size 8",
]


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Forkserver]:
    """Its processes have Triton's interpreter, which runs on a CPU what is launched on a GPU.
    Triton decides when it is imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        server = Forkserver()
    yield server
    server.close()


def captured(
    config: str, words: list[str], runs: Runs, folder: Path, server: Forkserver, *more: str | int
) -> str:
    """What the process said where it failed, or ""."""
    common = [*SMALL, "--data.path", str(runs.data), "--dump_folder", str(folder / "run"), *COMMON]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    arguments = (str(shipped_configs()[config]), [*common, *words], folder, *more)
    with server.start(train_captured, *arguments, environment=environment) as process:
        code = process.wait(300)
        assert code != 0 or (folder / "captured").exists(), process.output()
        return process.output() if code else ""


@pytest.mark.parametrize("words", SETTINGS, ids=lambda words: re.sub(r"--\w+\.", "", words)[:90])
def test_forward_and_backward_can_be_captured(
    words: str, runs: Runs, tmp_path: Path, interpreter: Forkserver
) -> None:
    variant, *rest = words.split()
    words = ["--model.variant", variant, *rest]
    assert captured("debug_standard", words, runs, tmp_path, interpreter) == ""


def test_what_thaws_is_captured_after_it_was_warmed_up(
    runs: Runs, tmp_path: Path, interpreter: Forkserver
) -> None:
    """Thawed by the second step, whose call is the first with other gradients."""
    words = ["--optimizer.groups", '[{parts = "mlp@upper head", freeze_until = 1}]']
    assert captured("debug_standard", words, runs, tmp_path, interpreter, "", 3) == ""


# What of a shipped file does not fit a CPU, a toy, or eight ranks. All else is as it is there.
SHRUNK = ["--device", "auto", "--data.tokenizer", "bytes", "--data.workers", "0"]
SHRUNK += ["--compile.enable", "false", "--validator.freq", "1", "--validator.rows", "8"]
SHRUNK += ["--validator.enable", "true", "--model.heads", "2", "--model.kv_heads", "2"]


@pytest.mark.parametrize("name", shipped_configs())
def test_the_settings_of_every_shipped_file_can_be_captured(
    name: str, runs: Runs, tmp_path: Path, interpreter: Forkserver
) -> None:
    """Validated before the first step and after each, so also between the call that warms up and
    the one that is captured."""
    words = list(SHRUNK)
    if "data_parallel_replicate_degree" in shipped_configs()[name].read_text():
        words += ["--parallelism.data_parallel_shard_degree", "4"]
        words += ["--parallelism.data_parallel_replicate_degree", "2"]
    assert captured(name, words, runs, tmp_path, interpreter) == ""


@pytest.mark.parametrize("read", READS)
def test_a_host_read_is_not_captured(read: str) -> None:
    x = torch.arange(-2.0, 3.0)
    READS[read](x)
    with pytest.raises(NotCapturable, match="the host reads a value"), capture(Stream()):
        READS[read](x)
    READS[read](x)


def test_a_host_read_in_the_model_is_noticed(
    runs: Runs, tmp_path: Path, interpreter: Forkserver
) -> None:
    said = captured("debug_mixit", [], runs, tmp_path, interpreter, ".tolist()")
    assert "NotCapturable: the host reads a value of the device: tolist" in said
