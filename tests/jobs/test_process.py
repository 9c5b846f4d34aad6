"""Jobs in real processes, under a runner in its own process."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import assert_groups_end

WORKER = "tests.jobs.worker"
ROOT = Path(__file__).parents[2]


@contextmanager
def worker(*words: str, **environment: str) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(
        [sys.executable, "-m", WORKER, *words],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Whoever runs the tests in the background of a script has it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict]]:
    """A folder of jobs that ran twice, one at a time, and what the runner found each time."""
    out = tmp_path_factory.mktemp("jobs")
    names = ("write", "mistake", "give_up", "leave", "crash", "second_time")
    found = []
    for _ in range(2):
        with worker(str(out), "1", *names) as process:
            said, error = process.communicate(timeout=120)
            assert process.returncode == 0, error
        written = json.loads((out / "write" / "result.json").read_text())
        found.append(json.loads(said) | {"written": written})
    return out, found


def test_a_job_ends_as_a_command_does(ran: tuple[Path, list[dict]]) -> None:
    out, (first, _) = ran
    codes = {"mistake": 2, "give_up": 1, "leave": 7, "crash": 1, "second_time": 1}
    assert first["failed"] == codes
    logs = {name: (out / name / "log.txt").read_text() for name in codes}
    assert logs["mistake"] == "mixit-titan: it is too large: make it smaller\n"
    assert logs["give_up"] == "mixit-titan: it cannot go on\n"
    assert logs["leave"] == "leaving\n"
    assert "Traceback" in logs["crash"] and "ArithmeticError: an error of ours" in logs["crash"]


def test_what_is_finished_is_kept_and_the_rest_is_run_again(ran: tuple[Path, list[dict]]) -> None:
    first, second = ran[1]
    assert set(first["failed"]) - set(second["failed"]) == {"second_time"}
    assert first["written"] == second["written"]  # by the same process


def test_nothing_is_left_and_torch_is_for_those_who_need_it(ran: tuple[Path, list[dict]]) -> None:
    for found in ran[1]:
        assert found["left"] == [] and not found["torch"]


def test_a_job_looks_for_garbage_but_not_among_what_its_server_imported(
    ran: tuple[Path, list[dict]],
) -> None:
    written = ran[1][0]["written"]
    assert written["collects"] and written["frozen"] > 1000


def test_jobs_that_run_together_share_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with worker(str(tmp_path), "2", "count_threads1", "count_threads_alone") as process:
        process.communicate(timeout=120)
    shared, alone = (
        json.loads((tmp_path / f"count_threads{name}" / "result.json").read_text())["threads"]
        for name in ("1", "_alone")
    )
    assert shared == max(1, alone // 2)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_job_outlives_its_runner(tmp_path: Path, how: signal.Signals) -> None:
    """Not one that was interrupted, nor one that was killed."""
    with worker(str(tmp_path), "2", "sleep1", "sleep2", "write", OMP_NUM_THREADS="1") as process:
        wait_until(lambda: len([*tmp_path.glob("*/pid")]) == 2)
        process.send_signal(how)
        _, said = process.communicate(timeout=120)
        assert_groups_end([process.pid], seconds=120)
    assert process.returncode == (-signal.SIGKILL if how == signal.SIGKILL else 130)
    assert ("Interrupted. Run the same command to resume" in said) is (how != signal.SIGKILL)
    assert not (tmp_path / "write" / "result.json").exists()
