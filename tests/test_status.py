"""`mixit-titan status` without Slurm: it tells live runs from dead ones, and survives whatever it
finds."""

import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mixit_titan.errors import ConfigError
from mixit_titan.jobs.lock import FolderLock
from mixit_titan.slurm import status
from mixit_titan.slurm.status import StatusArguments, run_status, show_status
from mixit_titan.tasks.checkpoint import FILE


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "_slurm_answers", lambda: True)
    monkeypatch.setattr(status, "_in_queue", lambda job: None)


def write_run(folder: Path, *, process: int, host: str, age: float) -> None:
    (folder / "heartbeat").mkdir(parents=True)
    (folder / "state").write_text("running 7\n")
    said = {"host": host, "process": process, "section": "step", "step": 8}
    (folder / "heartbeat" / "rank_0").write_text(json.dumps(said))
    for file in (folder / "state", folder / "heartbeat" / "rank_0"):
        os.utime(file, (time.time() - age,) * 2)


@pytest.fixture(scope="module")
def gone() -> int:
    """The number of a process that has ended."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


@pytest.mark.parametrize(
    ("host", "lives", "age", "word"),
    [
        ("here", True, 3, "running"),
        ("here", True, 30, "running"),
        ("here", True, 300, "dead"),  # its number may be another process's by now
        ("here", False, 3, "running"),  # it may have just been started again
        ("here", False, 30, "dead"),
        ("elsewhere", False, 30, "running"),
        ("elsewhere", True, 300, "dead"),
    ],
)
def test_a_run_is_dead_when_it_gives_no_sign_of_life(
    tmp_path: Path, gone: int, host: str, lives: bool, age: float, word: str
) -> None:
    name = socket.gethostname() if host == "here" else "another-node"
    write_run(tmp_path, process=os.getpid() if lives else gone, host=name, age=age)
    found = run_status(tmp_path, True)
    assert found.state == word
    assert ("no sign of life" in found.said) is (word == "dead")


def test_a_run_of_an_earlier_version_is_judged_by_its_state_file(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("running 7\n")
    assert run_status(tmp_path, True).state == "running"
    os.utime(tmp_path / "state", (0, 0))
    assert run_status(tmp_path, True).state == "dead"


def test_a_run_is_where_its_state_says_also_if_an_earlier_start_came_further(
    tmp_path: Path,
) -> None:
    """Its newest checkpoint was damaged: it resumed at the one before and was stopped there."""
    (tmp_path / "metrics.jsonl").write_text('{"step": 395, "loss": 2.8}\n')
    (tmp_path / "state").write_text("stopped 390 saved at step 390\n")
    assert run_status(tmp_path, True).step == "390"
    (tmp_path / "state").write_text("starting 0\n")  # by a job script, before the run itself
    assert run_status(tmp_path, True).step == "395"


def test_a_run_that_hung_says_how(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("hung 7 the run makes no progress: rank 1 is ...\n")
    found = run_status(tmp_path, True)
    assert found.state == "hung" and found.said.startswith("the run makes no progress")


def test_a_run_that_has_kept_its_times_shows_its_goodput(tmp_path: Path) -> None:
    times = {"began": 1000.0, "until": 1100.0, "first": 0, "step": 9, "ended": True}
    times |= {"start": 10.0, "compile": 5.0, "train": 83.0, "validate": 1.0, "save": 1.0}
    (tmp_path / "state").write_text("finished 9 2 batches skipped\n")
    assert run_status(tmp_path, True).goodput == "-"
    (tmp_path / "times.jsonl").write_text(json.dumps(times) + "\n")
    found = run_status(tmp_path, True)
    assert found.goodput == "83%" and found.said == "2 batches skipped"


def test_a_task_says_whether_it_is_running_dead_stopped_or_finished(
    tmp_path: Path, gone: int
) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 5, "loss": 0.5}\n')
    assert run_status(tmp_path, True).state == "-"
    lock = FolderLock(tmp_path, "--out")
    assert run_status(tmp_path, True).state == "running"
    owner = json.loads((tmp_path / ".lock").read_text())
    (tmp_path / ".lock").write_text(json.dumps(owner | {"pid": gone}))
    assert run_status(tmp_path, True).state == "dead"
    lock.release()
    (tmp_path / ".lock").unlink()
    (tmp_path / FILE).touch()
    assert run_status(tmp_path, True).state == "stopped"
    (tmp_path / "result.json").touch()
    assert run_status(tmp_path, True).state == "finished"


def test_a_dead_run_resumes_only_where_it_has_a_checkpoint(tmp_path: Path, gone: int) -> None:
    write_run(tmp_path, process=gone, host=socket.gethostname(), age=30)
    assert run_status(tmp_path, True).said.endswith("start it again to start over")


def test_a_folder_of_runs_says_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "sweep" / "1f2e").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"sweep is not a run folder$"):
        show_status(StatusArguments([str(tmp_path / "sweep")]))
    (tmp_path / "sweep" / "1f2e" / "metrics.jsonl").touch()
    with pytest.raises(ConfigError, match=r"not a run folder: name those in it, .*/sweep/\*$"):
        show_status(StatusArguments([str(tmp_path / "sweep")]))


def test_a_private_folder_of_somebody_else_hides_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    for name in ("mine", "private"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "state").write_text("finished 9\n")
    stat = os.stat

    def denied(path: object, **settings: object) -> os.stat_result:
        if "private/" in str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, **settings)

    monkeypatch.setattr(os, "stat", denied)
    monkeypatch.chdir(tmp_path)
    show_status(StatusArguments())
    assert "runs/mine  finished" in capfd.readouterr().out


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_file_that_cannot_be_read_hides_no_other(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "metrics.jsonl")
    (tmp_path / "state").write_text("stopped 9 saved at step 9\n")
    (tmp_path / "checkpoint" / "step-9").mkdir(parents=True)
    (tmp_path / "checkpoint" / "step-9" / "model.safetensors").touch()
    found = run_status(tmp_path, True)
    assert (found.state, found.step, found.checkpoint) == ("stopped", "9", "step-9")
    assert (found.loss, found.restarts, found.goodput) == ("-", "0", "-")
    assert "metrics.jsonl cannot be used (it is a" in found.said
    (tmp_path / "state").unlink()
    make(tmp_path / "state")
    found = run_status(tmp_path, True)
    assert (found.state, found.step, found.checkpoint) == ("-", "0", "step-9")


def test_it_never_dies_of_what_it_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    metrics = {
        "task": b'{"step": 5, "loss": 0.5, "accuracy": 1.0}\n',
        "list": b"[1, 2]\n",
        "words": b'{"step": 5, "loss": "low", "tokens_per_s": null}\n',
        "cut": b'{"step": 5, "loss": 0.25}\n{"step": 6, "lo',
        "binary": bytes(range(256)),
        "deep": b"[" * 100_000,
    }
    for name, content in metrics.items():
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "metrics.jsonl").write_bytes(content)
    os.mkfifo(tmp_path / "runs" / "binary" / "state")
    (tmp_path / "runs" / "deep" / "state").mkdir()
    (tmp_path / "runs" / "deep" / "job").write_bytes(b"\xff")
    (tmp_path / "runs" / "evil").mkdir()
    evil = "failed 3 [bold]no[/bold] [/] \x1b]0;title\x07\x1b[2J\n"
    (tmp_path / "runs" / "evil" / "state").write_text(evil)
    monkeypatch.chdir(tmp_path)
    show_status(StatusArguments())
    shown, errors = capfd.readouterr()
    assert not errors and "\x1b" not in shown and "\x07" not in shown
    assert "runs/evil: [bold]no[/bold] [/] \\x1b]0;title\\x07\\x1b[2J\n" in shown
    rows = {row.split()[0]: row.split()[1:] for row in shown.splitlines() if row[:5] == "runs/"}
    assert rows["runs/task"] == ["-", "5", "0.5000", "-", "0", "-", "-"]
    assert rows["runs/cut"] == ["-", "5", "0.2500", "-", "0", "-", "-"]
    assert rows["runs/words"] == ["-", "0", "-", "-", "0", "-", "-"]
    assert rows["runs/deep"][:3] == ["?", "0", "-"] and rows["runs/list"][0] == "-"
