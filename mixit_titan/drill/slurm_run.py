"""A run of the drill as a Slurm job, which requeues itself."""

import contextlib
import dataclasses
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from mixit_titan.config.checks import SHARD_OVER_ALL
from mixit_titan.drill.run import DrillFailed, Run, Setup
from mixit_titan.slurm.arguments import SubmitArguments
from mixit_titan.slurm.submit import submit

_ENDED = (
    *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("BOOT_FAIL", "DEADLINE", "PREEMPTED", "REVOKED", "SPECIAL_EXIT"),
)
_SECONDS_BETWEEN = 2.0
_PACKAGES = str(Path(__file__).parents[2])  # where a node finds this one


class SlurmRun(Run):
    """A run as a Slurm job."""

    STEPS = 200  # a fault reaches a node within a second, and a step of a toy takes milliseconds

    def __init__(self, setup: Setup, home: Path, submission: SubmitArguments) -> None:
        super().__init__(setup, home.absolute())
        self.submission = dataclasses.replace(submission, config=str(setup.config))
        self.job: str | None = None
        self.requeued = 0
        self._known = ("", 0.0, "")  # a job, when Slurm was asked about it, and its state

    def start(self, overrides: Sequence[str] = (), *, fewer: bool = False) -> None:
        """Submit the job, or resume it on fewer ranks; a requeued job has started by itself."""
        if self.job is None:
            words = [*self.setup.overrides, *overrides, "--dump_folder", str(self.folder)]
            with contextlib.redirect_stdout(io.StringIO()):
                submit(self.submission, words)
            self.job = (self.folder / "job").read_text().strip()
        elif fewer:
            size = self._one_fewer()
            script = str(self.folder / "job.sbatch")
            self.job = _slurm("sbatch", "--parsable", *size, script, *SHARD_OVER_ALL).strip()
            self.job = self.job.split(";")[0]

    def _one_fewer(self) -> list[str]:
        asked = self.submission
        if asked.nodes > 1:
            return [f"--nodes={asked.nodes - 1}"]
        return [f"--gpus-per-node={asked.gpus_per_node - 1}"]

    @property
    def patience(self) -> float:
        """Forever, because a job may wait in the queue."""
        return float("inf")

    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.job is not None and self._word() in _ENDED

    def _word(self) -> str:
        """Slurm's state of the job, at most a few seconds old, to spare the controller."""
        job, asked, word = self._known
        if job != self.job or time.monotonic() > asked + _SECONDS_BETWEEN:
            shown = _slurm("scontrol", "--oneliner", "show", "job", self.job)
            word = dict(each.split("=", 1) for each in shown.split() if "=" in each)["JobState"]
            self._known = (self.job, time.monotonic(), word)
        return word

    def wait_for_end(self) -> None:
        """Wait until the job has ended or requeued itself."""
        self.wait_until(lambda: self.is_over() or self._restarts() > self.requeued, "did not end")
        self.requeued = self._restarts()

    def _restarts(self) -> int:
        file = self.folder / "restarts"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def ask_to_stop(self) -> None:
        """Send SIGUSR1, as Slurm does before the time limit."""
        _slurm("scancel", "--batch", "--signal=USR1", self.job)

    def requeue(self) -> None:
        """Requeue the job, as Slurm does when another job preempts it."""
        _slurm("scontrol", "requeue", self.job)

    def cancel(self) -> None:
        """Cancel the job."""
        _slurm("scancel", self.job)

    def signal_rank(self, rank: int, number: signal.Signals) -> None:
        """Send a signal to one rank, on its node."""
        self._inject(rank, "signal", str(int(number)))

    def kill_launcher(self) -> None:
        """Kill the torchrun of the last rank's node by SIGKILL."""
        self._inject(self.setup.ranks - 1, "kill_launcher")

    def hold_save(self, seconds: float) -> None:
        """Make the next save take at least this long."""
        self._inject(0, "hold_save", str(self.checkpoints), str(seconds))

    def _inject(self, rank: int, what: str, *words: str) -> None:
        """Inject a fault on the rank's node, in a job step beside that of the ranks."""
        found = self.rank(rank)
        step = ["srun", "--overlap", f"--jobid={self.job}", "--ntasks=1", "--nodes=1"]
        step += [f"--nodelist={found['host'].split('.')[0]}", "--cpu-bind=none"]
        module = [sys.executable, "-m", "mixit_titan.drill.injection"]
        _slurm(*step, *module, what, str(found["process"]), *words)

    def said(self) -> str:
        """The job's state and the last line of its log."""
        lines = []
        for log in sorted((self.folder / "logs").glob("job_*.out")):
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        last = lines[-1] if lines else "no output"
        return f"job {self.job} {self._word()}, {last} (see {self.folder}/logs)"

    def close(self) -> None:
        """Cancel the job unless it has ended."""
        if self.job is not None and not self.is_over():
            self.cancel()


def _slurm(*command: str) -> str:
    environment = os.environ | {"PYTHONPATH": _with_packages()}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines() or ["nothing"]
        raise DrillFailed(f"{command[0]} ended with code {done.returncode} and said: {said[-1]}")
    return done.stdout


def _with_packages() -> str:
    return os.pathsep.join(filter(None, [_PACKAGES, os.environ.get("PYTHONPATH")]))
