"""CUDA graphs, which torchtitan uses on every GPU: the settings of the shipped configs, at a small
size."""

from pathlib import Path

import pytest

from mixit_titan.config.shipped import shipped_configs
from tests.forkserver import Forkserver
from tests.runtime.capture import RANKS, train_captured
from tests.runtime.conftest import SMALL, Runs

COMMON = ["--training.steps", "3", "--training.local_batch_size", "2"]
COMMON += ["--training.global_batch_size", str(2 * RANKS), "--lr_scheduler.warmup_steps", "1"]
VALIDATED = ["--validator.enable", "--validator.freq", "1", "--validator.rows", "64"]
SETTINGS = {
    "standard": "",
    "mixit": "",
    "frozen_mlp": "",
    "random": "",
    "mixit tied": "--model.tied --loss.num_chunks 8",
    "standard chunks": "--loss.num_chunks 8",
    "frozen_qk selective": "--activation_checkpoint.mode selective --loss.num_chunks 8",
    "mixit selective": "--activation_checkpoint.mode selective",
    "standard full": "--activation_checkpoint.mode full",
    "mixit documents": "--data.packing documents --model.mixing.storage stored",
    "mixit sharded": "--data.packing documents --model.mixing.storage sharded",
    "frozen_mlp resident": "--fsdp.frozen resident",
    "mixit replicated": "--parallelism.data_parallel_replicate_degree 2",
    "mixit tensor": "--parallelism.tensor_parallel_degree 2 --training.global_batch_size 8",
    "standard accumulation": "--training.global_batch_size 32",
}


def captured(name: str, overrides: list[str], runs: Runs, folder: Path, server: Forkserver) -> str:
    """What the process said where it failed, or ""."""
    config = str(shipped_configs()[f"debug_{name.split()[0]}"])
    words = [*SMALL, "--data.path", str(runs.data), "--dump_folder", str(folder / "run")]
    words += [*COMMON, *overrides]
    with server.start(train_captured, config, words, folder) as process:
        code = process.wait(300)
        assert code != 0 or (folder / "captured").exists(), process.output()
        return process.output() if code else ""


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("validation", [[], VALIDATED], ids=["", "validated"])
def test_forward_and_backward_can_be_captured(
    name: str, validation: list[str], runs: Runs, tmp_path: Path, forkserver: Forkserver
) -> None:
    overrides = [*SETTINGS[name].split(), *validation]
    assert captured(name, overrides, runs, tmp_path, forkserver) == ""
