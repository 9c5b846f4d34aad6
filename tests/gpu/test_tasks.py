"""The light loop on a GPU."""

import json
from pathlib import Path

import pytest
import torch

from mixit_titan.cli import main
from mixit_titan.runtime.metrics import read_metrics

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU, and --gpu")


@pytest.mark.parametrize("variant", ["standard", "frozen_qk", "mixit", "lstm"])
@pytest.mark.parametrize("options", ["", "--bf16 --compile"])
def test_a_task_learns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variant: str, options: str
) -> None:
    line = f"task modular --modulus 7 --train 40 --steps 200 --variant {variant} {options}"
    monkeypatch.setattr("sys.argv", ["mixit-titan", *line.split(), "--out", str(tmp_path)])
    main()
    assert json.loads((tmp_path / "result.json").read_text())["device"].startswith("cuda")
    losses = [line["loss"] for line in read_metrics(tmp_path / "metrics.jsonl") if "loss" in line]
    assert losses[-1] < losses[0] / 2  # it memorizes, at least
