"""Two ranks through torchtitan's FSDP2, in one torchrun for all tests of this file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SHAPE = "--width 32 --layers 2 --heads 4 --hidden 64 --vocab 48 --seq-len 16 --batch 2"
VARIANTS = ["standard", "frozen_qk", "mixit"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ranks")
    worker = Path(__file__).with_name("worker.py")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(worker)]
    arguments = [*SHAPE.split(), "--variants", *VARIANTS, "--out", str(out)]
    done = subprocess.run(
        [sys.executable, *torchrun, str(out), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    return out


def test_both_ranks_take_the_same_steps_in_the_same_order(folder: Path) -> None:
    first, second = (json.loads((folder / f"rank_{n}.json").read_text()) for n in (0, 1))
    assert first == second
    assert len(first) >= 3 * (1 + 2 + 8)


def test_total_and_efficiency_follow_from_the_ranks(folder: Path) -> None:
    found = json.loads((folder / "bench.json").read_text())
    assert found["settings"]["ranks"] == 2
    assert [row["variant"] for row in found["variants"]] == VARIANTS
    for row in found["variants"]:
        assert row["tokens_per_s"] == pytest.approx(2 * 2 * 16 / row["step_seconds"])
        assert len(row["tokens_per_s_per_rank"]) == 2
        # A step is over when its slowest rank is.
        assert row["tokens_per_s"] <= 2 * min(row["tokens_per_s_per_rank"]) * 1.0001
        one = row["tokens_per_s_alone"]
        assert row["scaling_efficiency"] == pytest.approx(row["tokens_per_s"] / (2 * one))


def test_the_bytes_counted_from_the_model_are_those_that_moved(folder: Path) -> None:
    found = json.loads((folder / "bench.json").read_text())
    moved = json.loads((folder / "rank_0.json").read_text())
    for row in found["variants"]:
        counted = row["communicated_bytes_per_step"]
        for step in moved:
            if step["variant"] == row["variant"] and step["batches"] == 1:
                assert step["weights"] == counted["weights"]
                assert step["gradients"] == counted["gradients"]
    standard, frozen, mixit = (row["communicated_bytes_per_step"] for row in found["variants"])
    # Half of the float32 gradients of two layers' queries and keys, which nobody needs.
    assert standard["gradients"] - frozen["gradients"] == 2 * 2 * 32**2 * 4 // 2
    assert standard["weights"] == frozen["weights"]
    # No queries and keys at all, but a vector for each position; the matrices do not travel.
    assert standard["gradients"] - mixit["gradients"] == (2 * 2 * 32**2 - 16 * 32) * 4 // 2
