"""Runs jobs, some at a time, each in a process of its own, and says how long it will take."""

import multiprocessing
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from mixit_titan.files import write_text
from mixit_titan.reproduction.jobs import Job
from mixit_titan.signals import terminated_as_interrupted

# The last is imported by the first step of any optimizer, which takes a second or two.
_PRELOADED = ["mixit_titan.tasks.command", "mixit_titan.runtime.train", "torch._dynamo"]


@dataclass
class Running:
    job: Job
    process: BaseProcess
    start: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.start


class Scheduler:
    """`failed`: the folders of jobs that ended without a result, or wait for such a one."""

    def __init__(self, jobs: list[Job], at_a_time: int, console: Console) -> None:
        self.jobs, self.at_a_time, self.console = jobs, at_a_time, console
        self.done = [job for job in jobs if job.result is not None]
        self.waiting = [job for job in jobs if job not in self.done]
        self.running: list[Running] = []
        self.failed: set[Path] = set()
        self.took: dict[tuple[str, ...], list[float]] = {}
        """Seconds of the jobs that are done, by their kind."""
        for job in self.done:
            self._note_seconds(job)

    def run(self, on_end: Callable[[Job], None]) -> None:
        """All that is not done; a job that fails does not stop the others. `on_end` is called after
        each."""
        self.console.print(f"{len(self.jobs)} jobs, {len(self.done)} of them done before")
        with self._progress() as show, terminated_as_interrupted():
            try:
                while self.waiting or self.running:
                    self._start_some()
                    for ended in [r for r in self.running if not r.process.is_alive()]:
                        self._end(ended)
                        on_end(ended.job)
                        self._say(ended)
                    show()
                    time.sleep(0.2)
            finally:
                for left in self.running:
                    left.process.terminate()  # each has its last checkpoint
                for left in self.running:
                    left.process.join()
                    _add_seconds(left)

    def _start_some(self) -> None:
        for job in list(self.waiting):
            if any(each.folder in self.failed for each in job.after):
                self.waiting.remove(job)
                self.failed.add(job.folder)
        while len(self.running) < self.at_a_time:
            ready = [job for job in self.waiting if all(each in self.done for each in job.after)]
            beside = [job for job in ready if not job.alone]
            if not ready or (self.running and not beside):
                return
            job = (beside or ready)[0]
            self.waiting.remove(job)
            threads = max(1, (os.cpu_count() or 1) // (1 if job.alone else self.at_a_time))
            self.running.append(Running(job, _start(job, threads)))
            if job.alone:
                return

    def _end(self, ended: Running) -> None:
        self.running.remove(ended)
        _add_seconds(ended)
        if ended.job.result is None:
            self.failed.add(ended.job.folder)
        else:
            self.done.append(ended.job)
            self._note_seconds(ended.job)

    def _note_seconds(self, job: Job) -> None:
        self.took.setdefault(job.words[:2], []).append(seconds_of(job))

    def seconds_left(self) -> float | None:
        """By what jobs of the same kind took, or all where there was none; None: nobody knows."""
        if not self.took:
            return None
        overall = statistics.fmean(each for times in self.took.values() for each in times)

        def expected(job: Job) -> float:
            return statistics.fmean(self.took.get(job.words[:2], [overall]))

        alone = sum(expected(job) for job in self.waiting if job.alone)
        beside = sum(expected(job) for job in self.waiting if not job.alone)
        begun = sum(max(0.0, expected(r.job) - r.seconds) for r in self.running)
        return alone + (beside + begun) / self.at_a_time

    def _left(self) -> str:
        seconds = self.seconds_left()
        return "" if seconds is None else f"about {max(1, round(seconds / 60))} min left"

    @contextmanager
    def _progress(self) -> Iterator[Callable[[], None]]:
        progress = Progress(
            TextColumn("jobs"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        bar = progress.add_task("", total=len(self.jobs), note="")

        def show() -> None:
            names = "; ".join(r.job.name for r in self.running)
            ended = len(self.done) + len(self.failed)
            progress.update(bar, completed=ended, note=f"{self._left()}  {names}")

        with progress:
            yield show

    def _say(self, ended: Running) -> None:
        job = ended.job
        outcome = f"failed: see {job.log}" if job.folder in self.failed else "done"
        count = f"{len(self.done) + len(self.failed)} of {len(self.jobs)}"
        said = [f"{count}: {job.name}: {outcome}", f"{ended.seconds:,.0f} s", self._left()]
        self.console.print(", ".join(filter(None, said)), soft_wrap=True, markup=False)


def seconds_of(job: Job) -> float:
    """What it took, in all of its starts."""
    file = job.folder / "seconds"
    if file.exists():
        return float(file.read_text())
    return (job.result or {}).get("seconds", 0.0)  # another command ran it


def _add_seconds(running: Running) -> None:
    file = running.job.folder / "seconds"
    before = float(file.read_text()) if file.exists() else 0.0
    write_text(file, f"{before + running.seconds:.3f}\n")


def _start(job: Job, threads: int) -> BaseProcess:
    """Processes are forked from one that has imported torchtitan, which takes seconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    job.mend(job.folder)
    process = context.Process(target=_work, args=(job.words, job.log, threads))
    process.start()
    return process


def _work(words: tuple[str, ...], log: Path, threads: int) -> None:
    """The command, with what it prints in the folder of the job."""
    from mixit_titan.cli import main

    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(threads)
    sys.argv = ["mixit-titan", *words]
    main()


def _end_with_parent() -> None:
    """A parent that was killed cannot end its jobs: they would go on beside those of the next."""
    multiprocessing.parent_process().join()
    os.kill(os.getpid(), signal.SIGTERM)
