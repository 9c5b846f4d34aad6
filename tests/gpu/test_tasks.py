"""The light loop on a GPU."""

import json
from pathlib import Path

import pytest
import torch

from mixit_titan.cli import main

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("variant", ["standard", "frozen_qk", "mixit", "lstm"])
@pytest.mark.parametrize("options", ["", "--bf16 --compile"])
def test_a_task_learns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variant: str, options: str
) -> None:
    line = (
        f"task modular --modulus 7 --train 40 --variant {variant} --steps 200 --batch 40 {options}"
    )
    monkeypatch.setattr("sys.argv", ["mixit-titan", *line.split(), "--out", str(tmp_path)])
    main()
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["device"].startswith("cuda")
    losses = [
        json.loads(row)["loss"] for row in open(tmp_path / "metrics.jsonl") if '"loss"' in row
    ]
    assert losses[-1] < losses[0] / 2  # by heart at least
