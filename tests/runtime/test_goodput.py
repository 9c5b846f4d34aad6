"""Where the time of a run went: a timeline known to the second, and a run that is killed."""

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mixit_titan.config.shipped import shipped_configs
from mixit_titan.runtime import ledger
from mixit_titan.runtime.goodput import Goodput, goodput
from mixit_titan.runtime.ledger import Ledger, read_times
from mixit_titan.runtime.run_state import read_state
from tests.forkserver import Forkserver, mixit_titan

from .conftest import SMALL
from .test_ending import wait_until


class Clock(SimpleNamespace):
    """Says what the test says."""

    now = 1000.0

    def time(self) -> float:
        return 1_760_000_000 + self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(ledger, "time", clock)
    return clock


def live(clock: Clock, folder: Path, *events: tuple[Any, ...], ends: bool = False) -> None:
    """One start of a run: ("step", 3, 10.0) is a section, its step and its seconds."""
    written = Ledger()
    for section, step, seconds in events:
        if section == "start":
            clock.now += seconds - 1
            written.open(folder)
            clock.now += 1
            continue
        written.begin(section, step)
        clock.now += seconds
    if ends:
        written.end()
    else:  # what begins next is the last that is heard of it
        written.begin("step", events[-1][1] + 1)


def steps(first: int, last: int, seconds: float) -> list[tuple[Any, ...]]:
    return [("step", step, seconds) for step in range(first, last + 1)]


def test_an_exact_timeline(tmp_path: Path, clock: Clock) -> None:
    """Killed after step 11, where 6 was saved; started again after 100 s, it did steps 7 to 11 once
    more, the first of which compiles."""
    first = [("start", 0, 20.0), ("first validation", 0, 5.0), ("first step", 1, 30.0)]
    first += [*steps(2, 6, 10.0), ("save", 6, 4.0), *steps(7, 11, 10.0)]
    live(clock, tmp_path, *first)
    assert goodput(tmp_path) == Goodput(20.0, 30.0, 100.0, 5.0, 4.0, lost=0.0, starts=1)
    clock.now += 100
    second = [("start", 0, 25.0), ("first step", 7, 31.0), *steps(8, 20, 10.0)]
    second += [("save", 20, 3.0), ("validation", 20, 2.0), ("end", 20, 1.0)]
    live(clock, tmp_path, *second, ends=True)
    found = goodput(tmp_path)
    # 50 of the first 100 s of training were kept.
    expected = Goodput(45.0, 61.0, 50.0 + 130.0, 7.0, 8.0, lost=50.0 + 100.0, starts=2)
    assert found == expected
    assert found.seconds == clock.now - 1000 and found.share == 180 / (clock.now - 1000)
    assert str(found) == (
        "39.9% of 8 min was training (start 45 s, compile 61 s, train 3 min, validate 7.0 s, "
        "save 8.0 s, lost 2 min; 1 restart)"
    )


def test_the_time_after_an_orderly_end_is_not_lost(tmp_path: Path, clock: Clock) -> None:
    """A run that was stopped, or extended a day later."""
    live(
        clock, tmp_path, ("start", 0, 10.0), ("first step", 1, 10.0), *steps(2, 9, 10.0), ends=True
    )
    clock.now += 86400
    live(clock, tmp_path, ("start", 0, 10.0), ("first step", 10, 10.0), *steps(11, 11, 10.0))
    assert goodput(tmp_path) == Goodput(20.0, 20.0, 90.0, 0.0, 0.0, lost=0.0, starts=2)


def test_a_start_that_came_to_nothing_and_a_damaged_checkpoint(
    tmp_path: Path, clock: Clock
) -> None:
    """The third start goes back behind the first, which had trained to 11: all steps of both are
    done again but for the second to the fifth."""
    live(clock, tmp_path, ("start", 0, 10.0), ("first step", 1, 10.0), *steps(2, 11, 10.0))
    live(clock, tmp_path, ("start", 0, 10.0), ("first step", 11, 10.0), *steps(12, 13, 10.0))
    dead = Ledger()
    clock.now += 7
    dead.open(tmp_path)  # killed as it loads
    live(clock, tmp_path, ("start", 0, 10.0), ("first step", 6, 10.0))
    found = goodput(tmp_path)
    assert found.train == pytest.approx(40.0) and found.starts == 4
    assert found.lost == pytest.approx(60.0 + 20.0 + 7.0)


def test_a_machine_that_slept_has_lost_that_time(tmp_path: Path, clock: Clock) -> None:
    clock.time = lambda: 1_760_000_000 + clock.now + (500 if clock.now > 1030 else 0)
    live(clock, tmp_path, ("start", 0, 10.0), ("first step", 1, 10.0), *steps(2, 5, 10.0))
    assert goodput(tmp_path) == Goodput(10.0, 10.0, 40.0, 0.0, 0.0, lost=500.0, starts=1)


def test_it_is_written_once_a_second(tmp_path: Path, clock: Clock) -> None:
    """And a long run's line fits: it is written in place."""
    clock.now = 9_999_999.0
    live(clock, tmp_path, ("start", 0, 9_999_999.123), ("first step", 10**9, 1_234_567.891))
    assert [len(line) for line in (tmp_path / "times.jsonl").read_bytes().splitlines()] == [511]
    written = Ledger()
    written.open(tmp_path)
    for step in range(1, 11):
        written.begin("step", step)
        clock.now += 0.3
    assert read_times(tmp_path)[1]["step"] in (7, 8, 9)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[1, 2]\n",
        b"[" * 100_000,
        b"\xff\xfe\n",
        b'{"began": 1, "until": "x"}\n',
        b'{"began": NaN, "until": 1, "first": 0, "step": 1, "ended": true, "start": 1, '
        b'"compile": 1, "train": 1, "validate": 1, "save": 1}\n',
        b'{"began": 1' + b"0" * 1000 + b', "until": 1, "first": 0, "step": 1, "ended": true, '
        b'"start": 1, "compile": 1, "train": 1, "validate": 1, "save": 1}\n',
    ],
)
def test_what_is_no_ledger_has_no_goodput(tmp_path: Path, content: bytes) -> None:
    assert goodput(tmp_path) is None  # a run of an earlier version
    (tmp_path / "times.jsonl").write_bytes(content)
    assert goodput(tmp_path) is None


def test_a_run_that_is_killed_and_resumed(tmp_path: Path, forkserver: Forkserver) -> None:
    folder, config = tmp_path / "run", str(shipped_configs()["debug_mixit"])
    words = ["train", config, *SMALL, "--dump_folder", str(folder), "--training.steps"]
    began = time.time()
    with forkserver.start(mixit_titan, *words, "1000000", "--checkpoint.interval", "50") as process:
        wait_until(lambda: (folder / "checkpoint" / "step-50").exists(), process)
        saved = read_state(folder).step
        wait_until(lambda: any(line["step"] > saved + 5 for line in read_times(folder)), process)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)
    killed = read_times(folder)[0]
    assert not killed["ended"] and killed["first"] == 0 and killed["train"] > 0
    newest = max(int(path.name[5:]) for path in (folder / "checkpoint").glob("step-*"))
    with forkserver.start(mixit_titan, *words, str(newest + 10)) as process:
        assert process.wait(300) == 0, process.output()
        said = process.output()
    wall = time.time() - began
    resumed = read_times(folder)[1]
    assert resumed["ended"] and (resumed["first"], resumed["step"]) == (newest, newest + 10)
    found = goodput(folder)
    assert f"Goodput: {found}" in said and "; 1 restart)" in said
    assert found.starts == 2 and 0 < found.share < 1
    # A line may be older than the last checkpoint by up to a second.
    again = killed["train"] * max(0, killed["step"] - newest) / (killed["step"] - 1)
    gap = resumed["began"] - killed["until"]
    assert found.lost == pytest.approx(again + gap, abs=0.1)
    assert found.train == pytest.approx(killed["train"] + resumed["train"] - again, abs=0.1)
    # Nothing is left out but for the way to the first line, and what follows the last.
    assert resumed["until"] - killed["began"] == pytest.approx(found.seconds, abs=0.1)
    assert found.seconds < wall
