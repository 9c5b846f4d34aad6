"""The drill itself, on this machine."""

import json
from pathlib import Path

import pytest

from mixit_titan.cli import main
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.drill.faults import FAULTS

MIXIT = str(shipped_configs()["debug_mixit"])


def drill(monkeypatch: pytest.MonkeyPatch, out: Path, *words: str) -> int:
    """Its exit code."""
    monkeypatch.setattr("sys.argv", ["mixit-titan", "drill", MIXIT, "--out", str(out), *words])
    try:
        main()
    except SystemExit as leaving:
        return leaving.code
    return 0


def test_two_faults_on_one_rank(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    job_server: None,
) -> None:
    words = ["--nproc", "1", "--only", "kill_rank", "kill_launcher", "--optimizer.lr", "1e-3"]
    assert drill(monkeypatch, tmp_path, *words) == 0
    found = json.loads((tmp_path / "drill.json").read_text())
    killed, skipped = found["faults"]
    assert (killed["outcome"], killed["losses"], killed["weights"]) == ("passed", 0, 0)
    assert killed["seconds"] > 0 and 0 <= killed["steps_lost"] < 50  # 0: it had just saved
    assert skipped["outcome"] == "skipped" and "its own launcher" in skipped["why"]
    said = capsys.readouterr().out
    assert f"mixit-titan train {MIXIT} --nproc 1 --optimizer.lr 1e-3" in said
    # What has passed is kept, by another command refused.
    assert drill(monkeypatch, tmp_path, *words) == 0
    assert "passed before" in capsys.readouterr().out
    assert json.loads((tmp_path / "drill.json").read_text()) == found
    assert drill(monkeypatch, tmp_path, *words, "--optimizer.lr", "1e-4") == 2
    assert "contains a drill with other settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    {
        ("--only", "kil_rank"): "did you mean 'kill_rank'",
        ("--only",): "--only needs a value",
        ("--only", "--nproc", "1"): "--only needs a value",
        ("--nproc", "0"): "--nproc is 0",
        ("--slurm", "--nproc", "2"): "with --slurm, set --nodes",
        ("--model.varant", "mixit"): "did you mean 'model.variant'",
        ("--parallelism.tensor_parallel_degree", "2", "--nproc", "1"): "does not fit 1 rank(s)",
    }.items(),
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    words: tuple[str, ...],
    said: str,
) -> None:
    assert drill(monkeypatch, tmp_path, *words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", ["unbroken", "sigterm"])
def test_a_folder_of_somebody_else_is_not_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, name: str
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "thesis.txt").touch()
    assert drill(monkeypatch, tmp_path, "--nproc", "1", "--only", "sigterm") == 2
    assert f"{tmp_path / name} was not written by a drill" in capsys.readouterr().err
    assert (tmp_path / name / "thesis.txt").exists()


@pytest.mark.slow
def test_all_faults_on_two_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job_server: None
) -> None:
    assert drill(monkeypatch, tmp_path, "--nproc", "2", "--watch.step", "10") == 0
    trials = json.loads((tmp_path / "drill.json").read_text())["faults"]
    assert [trial["fault"] for trial in trials] == list(FAULTS)
    for trial in trials:
        if trial["fault"] in ("requeue", "full_disk") and trial["outcome"] == "skipped":
            continue
        assert trial["outcome"] == "passed", trial
        if trial["fault"] != "fewer_ranks":
            assert trial["losses"] == trial["weights"] == 0
