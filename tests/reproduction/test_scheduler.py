"""Which jobs run when, on processes that do nothing."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from mixit_titan.reproduction import scheduler
from mixit_titan.reproduction.jobs import Job, read_json
from mixit_titan.reproduction.scheduler import Scheduler, seconds_of


class Process:
    """Ends when it has been asked a second time; a job that is called bad leaves no result."""

    def __init__(self, job: Job) -> None:
        self.job, self.asked, self.ended = job, 0, False

    def is_alive(self) -> bool:
        self.asked += 1
        if self.asked == 2 and "bad" not in self.job.name:
            self.job.folder.mkdir(exist_ok=True)
            (self.job.folder / "result.json").write_text(json.dumps({"seconds": 5.0}))
        return self.asked < 2

    def terminate(self) -> None:
        self.ended = True

    def join(self) -> None:
        assert self.ended


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Job]:
    def make(name: str, *after: Job, alone: bool = False) -> Job:
        folder = tmp_path / name
        folder.mkdir()
        read = lambda folder: read_json(folder / "result.json")  # noqa: E731
        return Job(("task", name[:3]), folder, name, read, {}, after=after, alone=alone)

    return make


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, list[Process]]]:
    """Name and threads of each job at its start, and its process."""
    found: list = []

    def start(job: Job, threads: int) -> Process:
        found.append((job.name, threads, Process(job)))
        return found[-1][2]

    monkeypatch.setattr(scheduler, "_start", start)
    monkeypatch.setattr(scheduler.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(scheduler.os, "cpu_count", lambda: 8)
    return found


def run(jobs: list[Job], at_a_time: int) -> tuple[Scheduler, list[set[str]]]:
    """Also which jobs were running when one ended, itself included."""
    runner, together = Scheduler(jobs, at_a_time, Console(quiet=True)), []

    def ended(job: Job) -> None:
        together.append({job.name} | {running.job.name for running in runner.running})

    runner.run(ended)
    return runner, together


def test_what_is_alone_runs_alone_and_last(make: Callable[..., Job], started: list) -> None:
    jobs = [make("bench", alone=True), *(make(f"task{n}") for n in range(5))]
    runner, together = run(jobs, 2)
    assert [name for name, _, _ in started] == [f"task{n}" for n in range(5)] + ["bench"]
    assert all(len(names) <= 2 for names in together) and {"task0", "task1"} in together
    assert [names for names in together if "bench" in names] == [{"bench"}]
    assert dict((name, threads) for name, threads, _ in started)["bench"] == 8
    assert {threads for name, threads, _ in started if name != "bench"} == {4}
    assert not runner.failed and not runner.waiting


def test_a_job_waits_for_what_it_reads(make: Callable[..., Job], started: list) -> None:
    """Also for one that runs alone."""
    first, large = make("first"), make("large", alone=True)
    jobs = [first, make("second", first), large, make("third", large)]
    run(jobs, 4)
    assert [name for name, _, _ in started] == ["first", "second", "large", "third"]


def test_a_failure_takes_along_only_what_reads_it(make: Callable[..., Job], started: list) -> None:
    bad = make("bad")
    jobs = [bad, make("reader", bad), make("other")]
    runner, _ = run(jobs, 1)
    assert {folder.name for folder in runner.failed} == {"bad", "reader"}
    assert [name for name, _, _ in started] == ["bad", "other"]


def test_a_finished_job_is_not_started(make: Callable[..., Job], started: list) -> None:
    jobs = [make("task0"), make("task1")]
    run(jobs[:1], 1)
    runner, _ = run(jobs, 1)
    assert [name for name, _, _ in started] == ["task0", "task1"]
    assert len(runner.done) == 2


def test_an_interrupt_ends_all_processes(make: Callable[..., Job], started: list) -> None:
    jobs = [make("task0"), make("task1", make("never"))]
    runner = Scheduler([*jobs, make("task2"), make("task3")], 3, Console(quiet=True))

    def interrupt(job: Job) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(interrupt)
    assert [process.ended for _, _, process in started] == [False, True, True]


def test_the_time_left_is_that_of_the_same_kind(make: Callable[..., Job]) -> None:
    """Kinds are the first two words: here tas and ben."""
    done = {"task0": 10.0, "task1": 20.0, "bench0": 100.0}
    jobs = [make(name) for name in done]
    for job in jobs:
        (job.folder / "result.json").write_text("{}")
        (job.folder / "seconds").write_text(str(done[job.name]))
    waiting = [make("task2"), make("task3"), make("new"), make("bench1", alone=True)]
    runner = Scheduler([*jobs, *waiting], 2, Console(quiet=True))
    overall = (10 + 20 + 100) / 3
    assert runner.seconds_left() == pytest.approx((15 + 15 + overall) / 2 + 100)
    assert Scheduler(waiting, 2, Console(quiet=True)).seconds_left() is None


def test_seconds_of_a_job_that_another_command_ran(make: Callable[..., Job]) -> None:
    job = make("task0")
    (job.folder / "result.json").write_text(json.dumps({"seconds": 7.5}))
    assert seconds_of(job) == 7.5
