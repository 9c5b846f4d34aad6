"""`python -m mixit_titan.gpu_check` as a user types it."""

import dataclasses
import getpass
import json
import socket
from pathlib import Path

import pytest

from mixit_titan.gpu_check import command, parity
from mixit_titan.gpu_check.check import failed
from mixit_titan.gpu_check.command import SECTIONS, Arguments, main, run_checks
from mixit_titan.gpu_check.report import JSON, MARKDOWN
from mixit_titan.gpu_check.scale import on_gpus, rehearsal
from mixit_titan.gpu_check.session import ROOT, Session

from .conftest import Node


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["gpu_check", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_without_a_gpu_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "--out", str(tmp_path)) == 2
    said = capsys.readouterr().err
    assert said.startswith("mixit-titan: this machine has no GPU: run this on a GPU node")
    assert said.count("\n") == 1 and "make test-gpu REHEARSE=1" in said


def test_bad_input_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for arguments, said in {
        ("--out", str(tmp_path / "file")): "cannot be created",
        ("--only", "trainin"): "did you mean 'training'?",
    }.items():
        assert call(monkeypatch, *arguments) == 2
        assert said in (text := capsys.readouterr().err) and text.count("\n") == 1


def test_a_gpu_that_torch_cannot_use_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the sentence of the process that looks for it."""
    sentence = "import sys; sys.exit('mixit-titan: torch cannot use the GPU of this machine')"
    monkeypatch.setattr(command, "module", lambda name: [command.sys.executable, "-c", sentence])
    assert call(monkeypatch, "--out", str(tmp_path)) == 2
    assert capsys.readouterr().err == ("mixit-titan: torch cannot use the GPU of this machine\n")


def test_the_end_says_where_the_report_is_and_the_exit_code_whether_all_is_well(
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(monkeypatch, "--out", str(tmp_path), "--only", "doctor") == 0
    said = capsys.readouterr().out
    assert "pass     doctor      doctor: nothing wrong, 1 warning\n" in said
    assert f"1 passed, 0 failed, 0 skipped. The report is {tmp_path / MARKDOWN}" in said
    node.dies = {"one"}
    assert call(monkeypatch, "--out", str(tmp_path), "--only", "training") == 1


def test_an_interrupted_call_leaves_what_it_has(
    node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    complete = run_checks(Arguments(out=tmp_path)).checks

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    node.machine["changes"] = "another"
    monkeypatch.setattr(node, "train", interrupt)
    assert call(monkeypatch, "--out", str(tmp_path)) == 130
    found = json.loads((tmp_path / JSON).read_text())["checks"]
    sections = {check["section"] for check in found}
    assert sections == {"doctor", "tests", "parity", "times"}
    assert "Not run: training, memory, throughput." in (tmp_path / MARKDOWN).read_text()
    node.machine["changes"] = None
    assert len(found) < len(complete)


def test_a_report_names_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu017")
    monkeypatch.setattr(getpass, "getuser", lambda: "alice")
    monkeypatch.setenv("HOME", "/home/alice")
    session = Session(tmp_path, rehearsal(), [])
    said = f"{tmp_path}/log {ROOT}/setup.py /home/alice/x on gpu017\nby alice | at 10.0.0.7"
    check = session.judged("doctor", "x", failed(said, checks=[{"fact": said, "number": 1}]))
    expected = "OUT/log ./setup.py ~/x on HOST by USER / at ADDRESS"
    assert check.said == expected
    assert check.figures == {"checks": [{"fact": expected, "number": 1}]}


@pytest.mark.parametrize(
    ("gpus", "ranks"), [(1, 1), (2, 2), (3, 2), (4, 4), (6, 4), (8, 8), (16, 8)]
)
def test_all_gpus_are_as_many_as_divide_the_batch(gpus: int, ranks: int) -> None:
    assert on_gpus(gpus, "NVIDIA H200").ranks == ranks
    assert on_gpus(gpus, "NVIDIA H200").gpu == "H200"
    assert on_gpus(gpus, "NVIDIA L4").gpu == "H100"


def test_a_broken_kernel_fails_and_the_rest_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In Triton's interpreter: that of stored matrices multiplies by 1.1."""
    small = {"parity_shapes": {"toy": (2, 16)}, "parity_lengths": (20,)}
    scale = dataclasses.replace(rehearsal(), **small)
    monkeypatch.setattr(command, "rehearsal", lambda: scale)
    monkeypatch.setattr(command, "_machine", lambda out: {"gpus": 0, **dict.fromkeys(FACTS)})
    monkeypatch.setattr(parity, "WORKER", "tests.gpu_check.broken_kernel")
    only = ("parity", "memory")
    found = run_checks(Arguments(out=tmp_path, rehearse=True, only=only)).checks
    states = {check.name: check.state for check in found if check.section == "parity"}
    assert states == {
        "toy (2 x 16), length 20, stored": "fail",
        "toy (2 x 16), length 20, sharded": "fail",
        "toy (2 x 16), length 20, drawn": "pass",
        "toy (2 x 16), length 20, drawn signs": "pass",
    }
    error = next(check.figures["error"] for check in found if check.state == "fail")
    assert error == pytest.approx(0.1, abs=0.01)
    assert any(check.section == "memory" for check in found)
    page = (tmp_path / MARKDOWN).read_text()
    assert "REHEARSAL" in page and "| toy (2 x 16) | **FAIL** (stored, sharded) |" in page


FACTS = ("mixit_titan", "commit", "torch", "torchtitan", "python", "device", "cores")


@pytest.mark.slow
def test_the_rehearsal_passes_in_every_section(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same code, with gloo, Triton's interpreter and toy sizes."""
    assert call(monkeypatch, "--rehearse", "--out", str(tmp_path)) == 0
    found = json.loads((tmp_path / JSON).read_text())
    assert found["rehearsal"] and found["summary"]["failed"] == 0
    passed = {check["section"] for check in found["checks"] if check["state"] == "pass"}
    assert passed == {"doctor", "parity", "training", "throughput"}
    skipped = [check for check in found["checks"] if check["state"] == "skipped"]
    assert {check["section"] for check in skipped} == {"tests", "times", "training", "memory"}
    assert all("need" in check["said"] for check in skipped)
    page = (tmp_path / MARKDOWN).read_text()
    assert page.startswith("# GPU check: REHEARSAL without a GPU")
    for section in SECTIONS:
        assert f"\n## {section} (" in page
    for name in (socket.gethostname(), str(tmp_path), str(ROOT)):
        assert name not in page
    assert not [*tmp_path.glob("training/*/checkpoint")]
