"""Bad steps on a GPU, with CUDA graphs: what the host sees, and when."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mixit_titan.config.shipped import shipped_configs
from mixit_titan.runtime.late import Late
from mixit_titan.runtime.run_state import read_state

from .test_gpu import GPUS, losses

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU, and --gpu")


def test_skipping_changes_nothing_where_there_is_nothing_to_skip(tmp_path: Path) -> None:
    skip = ["--training.on_bad_step", "skip", "--training.spike", "20.0"]
    ours, expected = losses(tmp_path / "skip", "mixit", *skip), losses(tmp_path / "stop", "mixit")
    assert max(abs(a - b) for a, b in zip(ours, expected, strict=True)) < 0.01


@pytest.mark.parametrize("mode", ["stop", "skip"])
def test_a_divergence_is_seen_where_nothing_is_logged(tmp_path: Path, mode: str) -> None:
    words = ["train", str(shipped_configs()["debug_mixit"]), "--nproc", str(GPUS)]
    words += ["--optimizer.lr", "1e30", "--lr_scheduler.warmup_steps", "1"]
    words += [
        "--metrics.log_freq",
        "1000",
        "--training.steps",
        "500",
        "--validator.enable",
        "false",
    ]
    words += ["--training.on_bad_step", mode, "--dump_folder", str(tmp_path)]
    command = [sys.executable, "-m", "mixit_titan", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 1
    assert (
        "There is no checkpoint from before that: start again with a lower learning rate"
        in done.stderr
    )
    assert read_state(tmp_path).step < 10


def test_numbers_come_one_step_late_and_as_they_were() -> None:
    found, taken = Late(torch.device("cuda")), []
    total = torch.zeros((), device="cuda")
    for step in range(1, 6):
        total += step
        found.put(step, total, 2 * total)
        taken.append(found.take())
    assert taken == [None] + [
        (step, [step * (step + 1) / 2, step * (step + 1.0)]) for step in range(1, 5)
    ]
    assert found.take(all_of_them=True) == (5, [15.0, 30.0])
