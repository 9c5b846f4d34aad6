"""The tests' own machinery: what it starts is a process like any other, and does not outlive it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forkserver import Forkserver
from tests.processes import is_alive

USER = """
import time
from tests.forkserver import Forkserver
server = Forkserver([])
print(server._server.pid, server.start(time.sleep, 300).pid, flush=True)
time.sleep(300)
"""


@pytest.fixture(scope="module")
def bare() -> Iterator[Forkserver]:
    """Nothing imported."""
    server = Forkserver([])
    yield server
    server.close()


def test_output_code_and_environment_are_the_process_s_own(
    bare: Forkserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN", "here")
    with bare.start(os.system, "echo $OWN; echo $OWN >&2") as said:
        assert said.wait(60) == 0 and said.output() == "here\nhere\n"
    with bare.start(sys.exit, 7) as left, bare.start(int, "x") as failed:
        assert left.wait(60) == 7
        assert failed.wait(60) == 1 and "ValueError" in failed.output()
    with bare.start(time.sleep, 300) as interrupted:
        assert interrupted.poll() is None and os.getpgid(interrupted.pid) == interrupted.pid
        os.killpg(interrupted.pid, signal.SIGTERM)
        assert interrupted.wait(60) == -signal.SIGTERM


def test_an_argument_may_be_longer_than_a_message_of_a_socket(bare: Forkserver) -> None:
    with bare.start(print_length, "x" * 10**6) as process:
        assert process.wait(60) == 0 and process.output() == "1000000\n"


def print_length(word: str) -> None:
    print(len(word), flush=True)


def test_a_rank_that_fails_ends_the_others(bare: Forkserver) -> None:
    with pytest.raises(AssertionError, match="rank 1 fails"):
        bare.run_ranks(2, 1, exec_rank, "raise SystemExit('rank 1 fails')")


def exec_rank(ports: list[int], code: str) -> None:
    """`code` on rank 1; rank 0 waits."""
    if os.environ["RANK"] == "1":
        exec(code)
    time.sleep(300)


@pytest.mark.skipif(not Path("/proc").exists(), reason="not on macOS")
def test_it_ends_with_its_user_however_that_ends() -> None:
    words = [sys.executable, "-c", USER]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as user:
        started = [int(number) for number in user.stdout.readline().split()]
        assert len(started) == 2 and all(map(is_alive, started))
        user.kill()
    deadline = time.monotonic() + 60
    while any(map(is_alive, started)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
