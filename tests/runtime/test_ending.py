"""How ranks end: by Ctrl-C, once and twice, and with a launcher that was killed."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mixit_titan.config.shipped import shipped_configs
from mixit_titan.parent import LAUNCHER, end_with_launcher, end_with_parent
from mixit_titan.runtime import launch, stop
from mixit_titan.runtime.heartbeat import read_heartbeats
from tests.forkserver import Forkserver, Process, mixit_titan
from tests.processes import assert_groups_end

from .test_watch import watchers


def wait_until(condition: Callable[[], object], process: Process, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, process.output()
        time.sleep(0.02)


def be_a_rank(saves: bool) -> None:
    """Sits in C, as in a collective, where no handler of Python's would be called."""
    stop.listen()
    if saves:
        stop.expect_to_save()
    print("ready", flush=True)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert signal.SIGINT in blocked  # and so it does not end the wait
    ctypes.CDLL(None).sleep(60)


def test_the_first_ctrl_c_is_noted_and_the_second_ends_a_rank(forkserver: Forkserver) -> None:
    with forkserver.start(be_a_rank, True) as rank:
        wait_until(lambda: "ready" in rank.output(), rank)
        for _ in range(2):  # at once: the terminal's, and what the launcher passes on
            os.kill(rank.pid, signal.SIGINT)
        wait_until(lambda: "Ctrl-C again to quit now" in rank.output(), rank)
        time.sleep(0.6)
        assert rank.poll() is None
        os.kill(rank.pid, signal.SIGINT)
        assert rank.wait(10) == 130


def test_ctrl_c_ends_a_rank_that_has_nothing_to_save(forkserver: Forkserver) -> None:
    with forkserver.start(be_a_rank, False) as rank:
        wait_until(lambda: "ready" in rank.output(), rank)
        os.kill(rank.pid, signal.SIGINT)
        assert rank.wait(10) == 130 and "nothing to save yet" in rank.output()


STUBBORN = """
import os, signal, time
from mixit_titan.parent import end_with_parent
end_with_parent()
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: print("got", number, flush=True))
print("ready", flush=True)
while True:
    time.sleep(0.1)
"""


def be_a_launcher() -> None:
    with launch._signals_passed_on():
        subprocess.Popen([sys.executable, "-c", STUBBORN], start_new_session=True).wait()


def test_a_launcher_passes_on_what_it_gets_and_ends_at_the_second_ctrl_c(
    forkserver: Forkserver,
) -> None:
    with forkserver.start(be_a_launcher) as launcher:
        wait_until(lambda: "ready" in launcher.output(), launcher)
        children = launch._groups_of_children(launcher.pid)
        assert len(children) == 1
        for number in (signal.SIGTERM, signal.SIGINT):
            os.killpg(launcher.pid, number)
            wait_until(lambda n=number: f"got {n:d}" in launcher.output(), launcher)
        time.sleep(0.2)
        assert launcher.poll() is None
        os.killpg(launcher.pid, signal.SIGINT)
        assert launcher.wait(10) == 130
        assert_groups_end(children, seconds=5)


def test_a_process_may_be_told_twice(forkserver: Forkserver) -> None:
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    before = threads()
    end_with_parent()
    after = threads()
    end_with_parent()
    assert before < after == threads()
    ctypes.CDLL(None).prctl(1, 0)  # the tests may outlive who started them


def start_as_a_rank(launcher_lives: bool) -> None:
    launcher = os.getppid() if launcher_lives else os.getpid()  # of which it is no child
    os.environ |= {"TORCHELASTIC_RUN_ID": "1", LAUNCHER: str(launcher)}
    end_with_launcher()
    time.sleep(1)


@pytest.mark.parametrize(("launcher_lives", "code"), [(True, 0), (False, -signal.SIGKILL)])
def test_a_rank_looks_whether_its_launcher_is_gone_already(
    forkserver: Forkserver, launcher_lives: bool, code: int
) -> None:
    """Killed as the rank's Python starts: the rank's parent is another process from then on."""
    with forkserver.start(start_as_a_rank, launcher_lives) as rank:
        assert rank.wait(10) == code


STARTER = """
import subprocess
from mixit_titan.parent import ending_with_this
python, option, code = ending_with_this()
assert code.endswith("from mixit_titan.cli import main; main()")
code = code.partition("from mixit_titan.cli")[0]  # in place of what the command does, it sleeps
code += "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
subprocess.run([python, option, code])
"""


def test_a_command_that_another_has_started_ends_with_it() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTER], stdout=-1, text=True) as starter:
        command = Path("/proc", starter.stdout.readline().strip())
        assert command.name.isdecimal() and command.exists()
        starter.kill()
        deadline = time.monotonic() + 5
        while command.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize("when", ["they start", "they train"])
def test_ranks_end_with_a_launcher_that_is_killed(
    tmp_path: Path, forkserver: Forkserver, when: str
) -> None:
    config = str(shipped_configs()["debug_mixit"])
    words = ["train", config, "--nproc", "2", "--dump_folder", str(tmp_path)]
    words += ["--training.steps", "100000", "--data.workers", "1", "--training.seq_len", "32"]
    with forkserver.start(mixit_titan, *words) as launcher:
        wait_until(lambda: len(launch._groups_of_children(launcher.pid)) == 2, launcher)
        ranks = launch._groups_of_children(launcher.pid)
        if when == "they start":
            time.sleep(1)  # in their imports
        else:
            wait_until(lambda: in_a_step(tmp_path), launcher)
        assert launcher.poll() is None
        os.kill(launcher.pid, signal.SIGKILL)
        assert launcher.wait(10) == -signal.SIGKILL
        assert_groups_end(ranks, seconds=5)  # and the workers of their loaders
    deadline = time.monotonic() + 5
    while watchers(tmp_path.resolve()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def in_a_step(folder: Path) -> bool:
    found = read_heartbeats(folder, 2)
    return len(found) == 2 and all("step" in said["section"] for said in found.values())
