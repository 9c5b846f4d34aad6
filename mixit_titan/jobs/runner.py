"""Runs jobs, several at a time, each in a separate process, and estimates the time left."""

import re
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from rich.console import Console

from mixit_titan.errors import SPEAKER, RunFailed
from mixit_titan.jobs import process
from mixit_titan.jobs.job import Job
from mixit_titan.jobs.progress import bar
from mixit_titan.reading import read_end

_FULL_DISK = re.compile(f"{SPEAKER}the disk .*is full")


@dataclass
class Running:
    """A job and its process."""

    job: Job
    process: BaseProcess
    start: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """The time since its start."""
        return time.monotonic() - self.start


class Runner:
    """Runs the jobs that are not done. A failed job stops only those that depend on it; one that
    fills the disk stops all."""

    def __init__(
        self, jobs: Iterable[Job], *, at_a_time: int = 1, preload: Sequence[str] = ()
    ) -> None:
        """`preload` names modules that all jobs need, to be imported once."""
        self.jobs = list({job.folder: job for job in jobs}.values())
        self.at_a_time, self.preload = at_a_time, preload
        self.console = Console(stderr=True)
        self.done = {job.folder for job in self.jobs if job.result is not None}
        self.waiting = [job for job in self.jobs if job.folder not in self.done]
        self.running: list[Running] = []
        self.failed: dict[Path, int] = {}
        """Folders of jobs that ended without a result, or wait for such a one -> exit code."""
        self.took: dict[str, list[float]] = {}
        """Seconds of the jobs that are done, by their kind."""
        for job in self.jobs:
            if job.folder in self.done:
                self._note_seconds(job)

    @property
    def left(self) -> set[Path]:
        """Folders of jobs that have not ended."""
        return {job.folder for job in self.jobs} - self.done - self.failed.keys()

    def run(self, on_end: Callable[[Job], None] = lambda job: None) -> None:
        """Run all jobs; `on_end` is called after each. Whatever ends this method ends all
        processes: Ctrl-C, SIGTERM and errors."""
        self.console.print(f"{len(self.jobs)} jobs, {len(self.done)} of them done before")
        process.preload(self.preload)
        shown = bar(self.console, len(self.jobs), self._state)
        with shown as show, process.terminated_as_interrupted():
            try:
                while self.waiting or self.running:
                    self._start_some()
                    for ended in [r for r in self.running if not r.process.is_alive()]:
                        self._end(ended)
                        on_end(ended.job)
                        self._say(ended)
                        self._check_disk(ended.job)
                    show()
                    time.sleep(0.1)
            except KeyboardInterrupt:
                self.console.print("Interrupted. Run the same command to resume")
                raise
            finally:
                for left in self.running:
                    left.process.terminate()  # each has saved its last checkpoint
                for left in self.running:
                    left.process.join()
                    left.job.add_seconds(left.seconds)

    def raise_if_failed(self) -> None:
        """Raise RunFailed if any job failed. Call it after reporting what was done."""
        if self.failed:
            logs = ", ".join(str(job.log) for job in self.jobs if job.folder in self.failed)
            raise RunFailed(f"{len(self.failed)} of {len(self.jobs)} jobs failed: see {logs}")

    def _start_some(self) -> None:
        for job in list(self.waiting):
            if any(each.folder in self.failed for each in job.after):
                self.waiting.remove(job)
                self.failed[job.folder] = 1
        while len(self.running) < self.at_a_time:
            ready = [job for job in self.waiting if self._may_start(job)]
            beside = [job for job in ready if not job.alone]
            if not ready or (self.running and not beside):
                break
            job = (beside or ready)[0]
            self.waiting.remove(job)
            job.mend(job.folder)
            share = 1 if job.alone else self.at_a_time
            self.running.append(Running(job, process.start(job, share)))
            if job.alone:
                break
        assert self.running or not self.waiting, "a job waits for one that is not run"

    def _may_start(self, job: Job) -> bool:
        return all(each.folder in self.done for each in job.after)

    def _end(self, ended: Running) -> None:
        job = ended.job
        self.running.remove(ended)
        job.add_seconds(ended.seconds)
        if job.result is None:
            self.failed[job.folder] = ended.process.exitcode or 1
        else:
            self.done.add(job.folder)
            self._note_seconds(job)

    def _check_disk(self, job: Job) -> None:
        """Stop if this job has filled the disk: the others would fail, too, so its sentence ends
        them all."""
        said = _last_line(job.log) if job.folder in self.failed else ""
        if _FULL_DISK.match(said):
            raise RunFailed(said.removeprefix(SPEAKER))

    def _note_seconds(self, job: Job) -> None:
        self.took.setdefault(job.kind, []).append(job.seconds)

    def seconds_left(self) -> float | None:
        """The estimated time left, from jobs of the same kind, or from all if there were none; None
        if unknown."""
        if not self.took:
            return None
        overall = statistics.fmean(each for times in self.took.values() for each in times)

        def expected(job: Job) -> float:
            return statistics.fmean(self.took.get(job.kind, [overall]))

        alone = sum(expected(job) for job in self.waiting if job.alone)
        beside = sum(expected(job) for job in self.waiting if not job.alone)
        begun = sum(max(0.0, expected(r.job) - r.seconds) for r in self.running)
        return alone + (beside + begun) / self.at_a_time

    def _state(self) -> tuple[int, str]:
        """The number of ended jobs and the note for the progress bar."""
        said = [f"{job.name} {job.status(job.folder)}" for job in (r.job for r in self.running)]
        return len(self.done) + len(self.failed), f"{self._left()}  {'; '.join(said)}"

    def _say(self, ended: Running) -> None:
        job = ended.job
        outcome = job.status(job.folder) or "done"
        if job.folder in self.failed:
            outcome = f"failed: {_last_line(job.log)} (see {job.log})"
        count = f"{len(self.done) + len(self.failed)} of {len(self.jobs)}"
        said = [f"{count}: {job.name}: {outcome}", f"{ended.seconds:,.0f} s", self._left()]
        self.console.print(", ".join(filter(None, said)), soft_wrap=True, markup=False)

    def _left(self) -> str:
        seconds = self.seconds_left()
        return (
            ""
            if seconds is None or not self.left
            else f"about {max(1, round(seconds / 60))} min left"
        )


def _last_line(log: Path) -> str:
    """The sentence that an error ended in, or the end of a traceback."""
    lines = read_end(log).decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")
