"""A folder has one writer, and a dead writer is detected."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mixit_titan.cli import main
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.errors import ConfigError
from mixit_titan.jobs import lock
from mixit_titan.jobs.lock import locked

HOLD = """
import os, sys, time
from pathlib import Path
from mixit_titan.jobs.lock import FolderLock
os.register_at_fork(after_in_child=lambda: time.sleep(float(sys.argv[2])))  # before the lock's
FolderLock(Path(sys.argv[1]), "--out")
if os.fork() == 0:  # as a worker of a loader, which outlives its parent for a while
    time.sleep(20)
    os._exit(0)
print("held", flush=True)
time.sleep(60)
"""


@contextmanager
def refused(folder: Path) -> Iterator[None]:
    with pytest.raises(ConfigError, match=rf"another mixit-titan \(.*\) is writing to {folder}"):
        yield


def other_host(folder: Path, **values: object) -> Path:
    """What a writer on another machine has left."""
    folder.mkdir(exist_ok=True)
    owner = {"host": "elsewhere", "pid": 1, "started": "1", "job": "", "restart": 0, "beat": 7}
    path = folder / ".lock"
    path.write_text(json.dumps(owner | values))
    return path


def no_flock(*_: object) -> None:
    raise OSError(38, "Function not implemented")


def test_a_folder_has_one_writer_at_a_time(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    with locked(out), refused(out), locked(out):
        pass
    with locked(out):
        assert (out / ".lock").exists()
    assert not any(out.iterdir())


def test_a_lock_that_its_owner_releases_meanwhile_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be held without a name, and the next one would see none."""
    found, flock_after = [], lock._flock_after

    def released_before(*arguments: object) -> bool | None:
        if not found:
            (tmp_path / ".lock").unlink()
        found.append(arguments)
        return flock_after(*arguments)

    monkeypatch.setattr(lock, "_flock_after", released_before)
    with locked(tmp_path):
        assert len(found) == 2
        with refused(tmp_path), locked(tmp_path):
            pass


@pytest.mark.parametrize("pause", [0, 0.5], ids=["quick fork", "slow fork"])
@pytest.mark.parametrize("has_locks", [True, False])
@pytest.mark.parametrize("noticed", [os.WEXITED, os.WEXITED | os.WNOWAIT], ids=["", "zombie"])
def test_a_killed_writer_is_dead_at_once_and_its_forks_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_locks: bool, pause: float, noticed: int
) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path), str(pause)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            if not has_locks:
                monkeypatch.setattr("fcntl.flock", no_flock)
            with pytest.raises(ConfigError, match=f"process {holder.pid} on"), locked(tmp_path):
                pass
            holder.kill()
            os.waitid(os.P_PID, holder.pid, noticed)
            with locked(tmp_path):
                pass
        finally:
            os.killpg(holder.pid, signal.SIGKILL)


@pytest.mark.parametrize("has_locks", [True, False])
def test_a_writer_on_another_machine_that_counts_is_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_locks: bool
) -> None:
    if not has_locks:
        monkeypatch.setattr("fcntl.flock", no_flock)
    path = other_host(tmp_path / "run")
    threading.Timer(0.3, other_host, [tmp_path / "run"], {"beat": 8}).start()
    with refused(tmp_path / "run"), locked(tmp_path / "run"):
        pass
    assert json.loads(path.read_text())["host"] == "elsewhere"


def test_a_writer_on_another_machine_that_stands_still_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_LEASE", 0.5)
    other_host(tmp_path)
    begun = time.monotonic()
    with locked(tmp_path):
        assert time.monotonic() - begun > 0.4


def test_one_that_has_stood_still_for_long_is_not_waited_for(tmp_path: Path) -> None:
    path = other_host(tmp_path)
    os.utime(path, (time.time() - 100, time.time() - 100))
    begun = time.monotonic()
    with locked(tmp_path):
        assert time.monotonic() - begun < 1


def test_the_restart_of_a_job_does_not_wait_for_its_predecessor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_host(tmp_path, job="42", restart=1)
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    begun = time.monotonic()
    with locked(tmp_path):
        assert time.monotonic() - begun < 1
        assert json.loads((tmp_path / ".lock").read_text())["restart"] == 2


def test_a_writer_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_BEAT", 0.05)
    with locked(tmp_path):
        deadline = time.monotonic() + 10
        while json.loads((tmp_path / ".lock").read_text())["beat"] < 3:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_writer_leaves_the_lock_of_another_that_took_its_folder_over(tmp_path: Path) -> None:
    """One that wakes up to end, before it has looked at its lock again."""
    with locked(tmp_path):
        other_host(tmp_path, pid=77)
    assert json.loads((tmp_path / ".lock").read_text())["pid"] == 77


def test_a_writer_whose_folder_was_taken_over_ends(tmp_path: Path) -> None:
    """As on a machine that was suspended for longer than the lease."""
    code = (
        "import sys, time; from pathlib import Path; from mixit_titan.jobs import lock\n"
        "lock._BEAT = 0.05\n"
        "lock.FolderLock(Path(sys.argv[1]), '--out')\n"
        "print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=-1, stderr=-1, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        while holder.poll() is None:
            other_host(tmp_path, pid=77)
            time.sleep(0.2)
        errors = holder.stderr.read()
    assert holder.returncode == 1
    assert "process 77 on elsewhere took" in errors
    assert json.loads((tmp_path / ".lock").read_text())["host"] == "elsewhere"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["task", "addition", "--steps", "1", "--out"], "--out"),
        (["sweep", "addition", "--variants", "mixit", "--out"], "--out"),
        (["suite", "state", "--only", "parity", "--out"], "--out"),
        (["demo", "--out"], "--out"),
        (["bench", "--flavor", "debug", "--variants", "standard", "--out"], "--out"),
        (["train", str(shipped_configs()["debug_mixit"]), "--dump_folder"], "--dump_folder"),
    ],
)
def test_a_second_command_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    words: list[str],
    option: str,
) -> None:
    monkeypatch.setattr("sys.argv", ["mixit-titan", *words, str(tmp_path / "out")])
    with locked(tmp_path / "out"):
        with pytest.raises(SystemExit) as exit_:
            main()
        assert {path.name for path in (tmp_path / "out").iterdir()} == {".lock"}
    assert exit_.value.code == 2
    said = capsys.readouterr().err
    assert f"is writing to {tmp_path / 'out'}: wait for it" in said
    assert f"choose another {option}" in said and "Traceback" not in said
