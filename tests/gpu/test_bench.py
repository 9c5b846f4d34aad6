"""The benchmark where times come from CUDA events."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU, and --gpu")

SHAPE = "--width 256 --layers 2 --heads 4 --vocab 512 --seq-len 256 --batch 4"


@pytest.mark.parametrize("ranks", [1, min(2, torch.cuda.device_count())])
def test_bench_on_a_gpu(tmp_path: Path, ranks: int) -> None:
    command = [sys.executable, "-m", "mixit_titan", "bench", *SHAPE.split()]
    command += ["--variants", "frozen_qk", "mixit", "--out", str(tmp_path), "--nproc", str(ranks)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    found = json.loads((tmp_path / "bench.json").read_text())
    assert found["environment"]["clock"] == "CUDA events"
    assert found["settings"]["dtype"] == "bfloat16"
    for row in found["variants"]:
        assert row["tokens_per_s"] > 0 and row["peak_memory_bytes"] > 0
        assert row["phase_seconds"]["forward"] > 0 and row["phase_seconds"]["backward"] > 0
