"""CUDA graphs, which torchtitan uses on every GPU: the settings of the shipped configs, at a small
size."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mixit_titan.config.shipped import shipped_configs
from tests.forkserver import Forkserver
from tests.runtime.capture import RANKS, train_captured
from tests.runtime.conftest import SMALL, Runs

COMMON = ["--training.steps", "3", "--training.local_batch_size", "2"]
COMMON += ["--training.global_batch_size", str(2 * RANKS), "--lr_scheduler.warmup_steps", "1"]
VALIDATED = " --validator.enable --validator.freq 1 --validator.rows 8"
DOCUMENTS = " --data.packing documents"
# A variant, and settings of the shipped configs. Rows of several documents are mixed by Triton.
SETTINGS = [
    "standard --loss.num_chunks 8",
    "standard --activation_checkpoint.mode full",
    "standard --training.global_batch_size 32",
    "frozen_qk --activation_checkpoint.mode selective --loss.num_chunks 8" + VALIDATED,
    "frozen_mlp --fsdp.frozen resident" + VALIDATED,
    "random" + VALIDATED,
    "mixit --model.mixing.storage generated",
    "mixit --model.mixing.storage generated --model.tied --loss.num_chunks 8" + VALIDATED,
    "mixit --activation_checkpoint.mode selective --loss.num_chunks 8" + DOCUMENTS + VALIDATED,
    "mixit --model.mixing.storage sharded" + DOCUMENTS,
    "mixit --parallelism.data_parallel_replicate_degree 2" + DOCUMENTS + VALIDATED,
    "mixit --parallelism.tensor_parallel_degree 2 --training.global_batch_size 8" + DOCUMENTS,
]


def captured(words: str, runs: Runs, folder: Path, server: Forkserver) -> str:
    """What the process said where it failed, or ""."""
    variant, *overrides = words.split()
    config = str(shipped_configs()["debug_standard"])
    common = [*SMALL, "--data.path", str(runs.data), "--dump_folder", str(folder / "run"), *COMMON]
    common += ["--model.variant", variant]
    if "generated" in overrides:
        return interpreted(config, [*common, *overrides], folder)
    with server.start(train_captured, config, [*common, *overrides], folder) as process:
        code = process.wait(300)
        assert code != 0 or (folder / "captured").exists(), process.output()
        return process.output() if code else ""


def interpreted(config: str, words: list[str], folder: Path) -> str:
    """The same where Triton was told so before it was imported: its interpreter runs on a CPU what
    is launched on a GPU."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.capture", config, str(folder), *words],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode != 0 or (folder / "captured").exists(), done.stderr
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.parametrize("words", SETTINGS)
def test_forward_and_backward_can_be_captured(
    words: str, runs: Runs, tmp_path: Path, forkserver: Forkserver
) -> None:
    assert captured(words, runs, tmp_path, forkserver) == ""


def test_a_host_read_is_noticed(runs: Runs, tmp_path: Path, forkserver: Forkserver) -> None:
    """On a CPU the stored form asks where documents are."""
    said = captured("mixit --model.mixing.storage stored", runs, tmp_path, forkserver)
    assert "NotCapturable: the host reads a value of the device" in said
