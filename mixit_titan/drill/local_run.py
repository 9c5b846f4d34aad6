"""A run of the drill on this machine: what `mixit-titan train` does, in a separate process that the
drill restarts."""

import os
import signal
import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

from mixit_titan.config.checks import SHARD_OVER_ALL
from mixit_titan.config.run import run_train
from mixit_titan.drill.injection import hold_save
from mixit_titan.drill.run import DrillFailed, Run, Setup
from mixit_titan.jobs import process
from mixit_titan.jobs.job import Job
from mixit_titan.runtime.heartbeat import read_heartbeats

_SECONDS_TO_GO = 20.0  # for ranks whose launcher was killed


class LocalRun(Run):
    """A run on this machine."""

    STEPS = 120

    def __init__(self, setup: Setup, home: Path) -> None:
        super().__init__(setup, home)
        self.starts: list[tuple[Job, BaseProcess]] = []

    def start(self, overrides: Sequence[str] = (), *, fewer: bool = False) -> None:
        """Start, or resume, in a new process."""
        setup = self.setup
        words = [*setup.overrides, *overrides, "--dump_folder", str(self.folder)]
        ranks = setup.fewer if fewer else setup.ranks
        job = Job(
            folder=self.home / f"start_{len(self.starts) + 1}",
            name=self.home.name,
            kind="drill",
            work=run_train,
            arguments=(str(setup.config), [*words, *(SHARD_OVER_ALL if fewer else ())], ranks),
            read=lambda folder: None,
        )
        self.starts.append((job, process.start(job, 1)))

    @property
    def process(self) -> BaseProcess:
        """The process of the latest start."""
        return self.starts[-1][1]

    def is_over(self) -> bool:
        """Whether the latest process has ended."""
        return bool(self.starts) and not self.process.is_alive()

    def wait_for_end(self) -> None:
        """Wait until the command and all of its ranks have ended."""
        self.wait_until(self.is_over, "did not end")
        deadline = time.monotonic() + _SECONDS_TO_GO
        while left := [pid for pid in self._ranks() if _is_alive(pid)]:
            if time.monotonic() > deadline:
                raise DrillFailed(f"the command has ended, but its ranks {left} have not")
            time.sleep(0.05)

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the command."""
        os.kill(self.process.pid, signal.SIGTERM)

    def signal_rank(self, rank: int, number: signal.Signals) -> None:
        """Send a signal to one rank."""
        os.kill(self.rank(rank)["process"], number)

    def kill_launcher(self) -> None:
        """Kill the command by SIGKILL."""
        os.kill(self.process.pid, signal.SIGKILL)

    def hold_save(self, seconds: float) -> None:
        """Make the next save take at least this long."""
        try:
            hold_save(self.rank(0)["process"], self.checkpoints, seconds)
        except TimeoutError as error:
            raise DrillFailed(str(error)) from None

    def said(self) -> str:
        """The exit code and the last line of the log."""
        job, ended = self.starts[-1]
        lines = job.log.read_text(errors="replace").splitlines() if job.log.exists() else []
        words = [line for line in lines if line.startswith("mixit-titan: ")] or lines[-1:]
        return f"exit code {ended.exitcode}, {(words or ['no output'])[-1]} (see {job.log})"

    def close(self) -> None:
        """Kill the command and its ranks if they are still running."""
        if self.starts and self.process.is_alive():
            self.process.kill()  # and its ranks with it
            self.process.join()

    def _ranks(self) -> list[int]:
        found = read_heartbeats(self.folder, self.setup.ranks).values()
        return [said["process"] for said in found]


def _is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended but was not waited for yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
