"""Which jobs run when, on processes that do nothing."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mixit_titan.errors import RunFailed
from mixit_titan.jobs import runner as module
from mixit_titan.jobs.job import Job
from mixit_titan.jobs.runner import Runner


class Process:
    """Ends when it has been asked a second time; a job that is called bad leaves no result."""

    def __init__(self, job: Job) -> None:
        self.job, self.asked, self.ended = job, 0, False
        self.exitcode = 3 if "bad" in job.name else 0

    def is_alive(self) -> bool:
        self.asked += 1
        if self.asked == 2 and not self.exitcode:
            self.job.folder.mkdir(exist_ok=True)
            (self.job.folder / "result.json").write_text(json.dumps({"seconds": 5.0}))
        return self.asked < 2

    def terminate(self) -> None:
        self.ended = True

    def join(self) -> None:
        assert self.ended


def read(folder: Path) -> dict | None:
    path = folder / "result.json"
    return json.loads(path.read_text()) if path.exists() else None


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Job]:
    """A job of a kind that its name without the number is."""

    def make(name: str, *after: Job, alone: bool = False) -> Job:
        return Job(
            folder=tmp_path / name,
            name=name,
            kind=name.rstrip("0123456789"),
            work=print,
            arguments=(),
            read=read,
            after=after,
            alone=alone,
            mend=lambda folder: (folder / "broken").unlink(missing_ok=True),
            status=lambda folder: "learned all" if name == "task0" else "",
        )

    return make


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, Process]]:
    """Name of each job when it starts, how many share the cores with it, and its process."""
    found: list = []

    def start(job: Job, share: int) -> Process:
        found.append((job.name, share, Process(job)))
        return found[-1][2]

    monkeypatch.setattr(module.process, "start", start)
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
    return found


def run(jobs: list[Job], at_a_time: int) -> tuple[Runner, list[set[str]]]:
    """Also which jobs were running when one ended, itself included."""
    runner, together = Runner(jobs, at_a_time=at_a_time), []

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
    assert {name: share for name, share, _ in started}.pop("bench") == 1
    assert {share for name, share, _ in started if name != "bench"} == {2}
    assert not runner.failed and not runner.waiting and not runner.left


def test_a_full_disk_ends_all_jobs_in_the_sentence_of_the_first(
    make: Callable[..., Job], started: list
) -> None:
    """The others would meet it too."""
    jobs = [make("bad"), make("task1"), make("task2")]
    jobs[0].folder.mkdir()
    sentence = "the disk with runs/bad is full at step 3: make room"
    jobs[0].log.write_text(f"step 3\nmixit-titan: {sentence}\n")
    with pytest.raises(RunFailed, match=f"^{sentence}$"):
        Runner(jobs, at_a_time=2).run()
    assert [(name, process.ended) for name, _, process in started] == [
        ("bad", False),
        ("task1", True),
    ]


def test_a_job_waits_for_what_it_reads(make: Callable[..., Job], started: list) -> None:
    """Also for one that runs alone, and for a job of the same folder that was made elsewhere."""
    first, large = make("first"), make("large", alone=True)
    jobs = [make("first"), make("second", first), large, make("third", large)]
    run(jobs, 4)
    assert [name for name, _, _ in started] == ["first", "second", "large", "third"]


def test_a_failure_takes_along_only_what_reads_it(
    make: Callable[..., Job], started: list, capsys: pytest.CaptureFixture
) -> None:
    bad = make("bad")
    bad.folder.mkdir()
    bad.log.write_text("on the way\nmixit-titan: it is too large\n\n")
    jobs = [bad, make("reader", bad), make("other")]
    runner, _ = run(jobs, 1)
    assert {folder.name: code for folder, code in runner.failed.items()} == {"bad": 3, "reader": 1}
    assert [name for name, _, _ in started] == ["bad", "other"]
    said = capsys.readouterr().err
    assert f"1 of 3: bad: failed: mixit-titan: it is too large (see {bad.log})" in said
    assert "3 of 3: other: done, 0 s\n" in said


def test_a_finished_job_is_not_started_and_another_is_mended(
    make: Callable[..., Job], started: list, capsys: pytest.CaptureFixture
) -> None:
    jobs = [make("task0"), make("task1")]
    run(jobs[:1], 1)
    assert "1 of 1: task0: learned all, 0 s" in capsys.readouterr().err
    for job in jobs:
        job.folder.mkdir(exist_ok=True)
        (job.folder / "broken").touch()
    runner, _ = run([*jobs, make("task0")], 1)
    assert [name for name, _, _ in started] == ["task0", "task1"]
    assert "2 jobs, 1 of them done before" in capsys.readouterr().err
    assert len(runner.done) == 2
    assert [(job.folder / "broken").exists() for job in jobs] == [True, False]


def test_an_interrupt_ends_all_processes(make: Callable[..., Job], started: list) -> None:
    jobs = [make(f"task{n}") for n in range(4)]
    runner = Runner(jobs, at_a_time=3)

    def interrupt(job: Job) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(interrupt)
    assert [process.ended for _, _, process in started] == [False, True, True]
    assert runner.left == {job.folder for job in jobs[1:]}


def test_the_time_left_is_that_of_the_same_kind(make: Callable[..., Job]) -> None:
    done = {"task0": 10.0, "task1": 20.0, "bench0": 100.0}
    jobs = [make(name) for name in done]
    for job in jobs:
        job.folder.mkdir()
        (job.folder / "result.json").write_text("{}")
        (job.folder / "seconds").write_text(str(done[job.name]))
    waiting = [make("task2"), make("task3"), make("new"), make("bench1", alone=True)]
    overall = (10 + 20 + 100) / 3
    left = Runner([*jobs, *waiting], at_a_time=2).seconds_left()
    assert left == pytest.approx((15 + 15 + overall) / 2 + 100)
    assert Runner(waiting, at_a_time=2).seconds_left() is None


def test_seconds_add_up_over_the_starts_of_a_job(make: Callable[..., Job]) -> None:
    """Another command that ran it left them in its result."""
    job = make("task0")
    job.folder.mkdir()
    (job.folder / "result.json").write_text(json.dumps({"seconds": 7.5}))
    assert job.seconds == 7.5
    job.add_seconds(1.25)
    job.add_seconds(2.0)
    assert job.seconds == 3.25
