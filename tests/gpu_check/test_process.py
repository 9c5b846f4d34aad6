"""Processes that crash, hang and fail, and what is reported about them."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from mixit_titan.gpu_check import process
from mixit_titan.gpu_check.process import Ended, last_line, run, run_cases, started
from tests.processes import is_alive

WORKER = "tests.gpu_check.worker"
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_a_case_that_kills_its_process_does_not_take_the_others_along(tmp_path: Path) -> None:
    words = ["one", "abort", "two", "raise", "three"]
    cases = [{"do": word} for word in words]
    found = [(case["do"], said) for case, said, _ in run_cases(WORKER, cases, tmp_path, 60)]
    assert [word for word, _ in found] == words
    said = dict(found)
    assert [said[word] for word in ("one", "two", "three")] == [
        {"did": "one"},
        {"did": "two"},
        {"did": "three"},
    ]
    assert str(said["abort"]) == "killed by SIGABRT: the last line before the end"
    assert str(said["raise"]) == "exit code 1: ValueError: wrong in a few words"


def test_a_case_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    cases = [{"do": "hang", "file": str(file)}, {"do": "next"}]
    start = time.monotonic()
    (_, hung, _), (_, after, _) = run_cases(WORKER, cases, tmp_path, 3)
    assert time.monotonic() - start < 30
    assert hung.code is None and str(hung).startswith("not finished after 3 s")
    assert after == {"did": "next"}
    assert not is_alive(int(file.read_text()))


def test_an_interrupt_ends_the_process(tmp_path: Path) -> None:
    seen: list[subprocess.Popen] = []

    def interrupt(process: subprocess.Popen) -> None:
        seen.append(process)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(SLEEP, tmp_path / "log", 60, watch=interrupt)
    assert seen[0].returncode is not None and not is_alive(seen[0].pid)


def test_a_process_that_ignores_the_request_to_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_SECONDS_TO_END", 0.2)
    deaf = "import signal, time; signal.signal(15, 1); print('deaf', flush=True); time.sleep(600)"
    log = tmp_path / "log"
    with started([sys.executable, "-c", deaf], log) as child:
        while "deaf" not in log.read_text():
            time.sleep(0.02)
    assert child.returncode == -9


def test_a_rank_of_this_job_is_none_of_what_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    show = [sys.executable, "-c", "import os; print(os.environ.get('LOCAL_RANK'))"]
    assert run(show, tmp_path / "log", 60).last == "None"


def test_the_error_is_quoted_not_what_follows_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "Traceback (most recent call last):\n"
        "[rank0]: torch.AcceleratorError: CUDA error: an illegal memory access\n"
        "E1118 torchrun: failed (exitcode: 1) local_rank: 0\n"
        "=======\n"
    )
    assert last_line(log) == "[rank0]: torch.AcceleratorError: CUDA error: an illegal memory access"
    log.write_text("mixit-titan: there is no GPU here\n\n")
    assert last_line(log) == "mixit-titan: there is no GPU here"
    log.write_text("│ Unrecognized options: --x │\n╰─────╯\n")
    assert last_line(log) == "│ Unrecognized options: --x │"
    log.write_text("x" * 1000)
    assert len(last_line(log)) < 300
    log.write_text("")
    assert str(Ended(0, last_line(log), 1.0)) == "exit code 0: no output"
