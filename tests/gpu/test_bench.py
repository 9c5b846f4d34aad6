"""The benchmark where times come from CUDA events."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mixit_titan.config.shipped import shipped_configs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU, and --gpu")

SHAPE = "--width 256 --layers 2 --heads 4 --vocab 512 --seq-len 256 --batch 4"


def bench(out: Path, *words: str) -> dict:
    command = [sys.executable, "-m", "mixit_titan", "bench", *words, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    found = json.loads((out / "bench.json").read_text())
    points = found.get("points", [found])
    for row in (row for point in points for row in point["variants"]):
        assert row["tokens_per_s"] > 0 and row["peak_memory_bytes"] > 0
        assert row["phase_seconds"]["forward_backward"] > 0
    assert {point["environment"]["clock"] for point in points} == {"CUDA events"}
    return found


@pytest.mark.parametrize("ranks", [1, min(2, torch.cuda.device_count())])
def test_bench_on_a_gpu(tmp_path: Path, ranks: int) -> None:
    words = [*SHAPE.split(), "--variants", "frozen_qk", "mixit", "--nproc", str(ranks)]
    settings = bench(tmp_path, *words)["settings"]
    assert settings["dtype"] == "bfloat16" and settings["graphs"]


def test_graphs_documents_and_chunks_on_and_off(tmp_path: Path) -> None:
    axes = ["--graphs", "on,off", "--documents", "on,off", "--chunks", "1,8"]
    found = bench(tmp_path, *SHAPE.split(), "--variants", "mixit", *axes)
    assert len(found["points"]) == 8
    for point in found["points"]:
        settings = point["settings"]
        assert settings["attention"] == ("flex" if settings["documents"] else "sdpa")


def test_the_run_of_a_config(tmp_path: Path) -> None:
    config = str(shipped_configs()["160m_fineweb_edu"])
    settings = bench(tmp_path, config, "--variants", "mixit", "--batch", "8")["settings"]
    assert settings["graphs"] and settings["documents"] and settings["compile"]
    assert settings["chunks"] == 8 and settings["attention"] == "flex"
