"""The in-context learning score and the heads of every checkpoint."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from mixit_titan.analysis.attention import attention
from mixit_titan.analysis.sequences import plain_sequences
from mixit_titan.cli import main
from mixit_titan.runtime.trained import load_trained
from tests.runtime.conftest import Runs


@pytest.fixture
def run(runs: Runs, tmp_path: Path) -> Path:
    """A run that was another model at step 10 than at step 20."""
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(runs.folder("frozen_qk") / "config.json", folder)
    for step, name in {10: "standard", 20: "frozen_qk"}.items():
        shutil.copytree(
            runs.folder(name) / "checkpoint" / "step-20", folder / "checkpoint" / f"step-{step}"
        )
    return folder


def analyze(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr("sys.argv", ["mixit-titan", "analyze", "timeline", *map(str, arguments)])
    main()


def test_every_checkpoint_has_its_scores(
    run: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    analyze(monkeypatch, run, "--sequences", 3)
    found = json.loads((run / "analysis" / "timeline.json").read_text())
    assert (run / "analysis" / "timeline.png").stat().st_size > 1000
    assert "late - early" in capsys.readouterr().out
    assert found["positions"] == {"early": [2, 3], "late": [28, 31]}
    ids = np.fromfile(runs.data / "validation-00000.tokens", "<u2")[: 3 * 32].astype(np.int64)
    tokens = torch.from_numpy(ids).view(3, 32)
    assert [row["step"] for row in found["rows"]] == [10, 20]
    for row in found["rows"]:
        model = load_trained(run, row["step"]).model
        logits = model(tokens).double().numpy()
        chosen = np.take_along_axis(logits[:, :-1], tokens.numpy()[:, 1:, None], axis=2)[..., 0]
        nats = np.logaddexp.reduce(logits[:, :-1], axis=2) - chosen
        before = np.arange(1, 32)
        early, late = (nats[:, (before >= a) & (before <= b)].mean() for a, b in ((2, 3), (28, 31)))
        assert row["early"] == pytest.approx(early, rel=1e-5)
        assert row["late"] == pytest.approx(late, rel=1e-5)
        assert row["in_context"] == pytest.approx(late - early, abs=1e-5)
        assert row["loss"] == pytest.approx(nats.mean(), rel=1e-5)
        heads = attention(model, plain_sequences(tokens, ""))
        assert row["induction_head"] == heads["induction_head"]
        assert row["previous_head"] == heads["previous_head"]
    assert found["rows"][0]["late"] != found["rows"][1]["late"]


def test_a_damaged_checkpoint_is_left_out(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (run / "checkpoint" / "step-10" / ".metadata").unlink()
    analyze(monkeypatch, run, "--sequences", 1)
    found = json.loads((run / "analysis" / "timeline.json").read_text())
    assert [row["step"] for row in found["rows"]] == [20]


def test_short_sequences_are_refused(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "short.txt").write_text("short")
    with pytest.raises(SystemExit):
        analyze(monkeypatch, run, "--text", tmp_path / "short.txt")
    assert "the sequences have 5 tokens" in capsys.readouterr().err
