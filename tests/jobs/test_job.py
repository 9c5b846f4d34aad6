"""What is left in the folder of a job."""

import os
from pathlib import Path

import pytest

from mixit_titan.jobs.job import Job
from mixit_titan.jobs.lock import locked
from mixit_titan.jobs.runner import _last_line


def job(folder: Path) -> Job:
    work = {"work": print, "arguments": (), "read": lambda folder: {"seconds": 7.0}}
    return Job(folder=folder, name="", kind="", **work)


@pytest.mark.parametrize("text", ["", "x", "nan", "-3", "1e999", "9" * 400, "[1]", "\0", "1\n2\n"])
def test_a_time_that_is_none_is_forgotten(tmp_path: Path, text: str) -> None:
    (tmp_path / "seconds").write_text(text)
    assert job(tmp_path).seconds == 7.0
    job(tmp_path).add_seconds(2.5)
    assert job(tmp_path).seconds == 2.5
    job(tmp_path).add_seconds(2.0)
    assert job(tmp_path).seconds == 4.5


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    for name in ("seconds", "log.txt"):
        os.mkfifo(tmp_path / name)
    assert job(tmp_path).seconds == 7.0
    assert _last_line(tmp_path / "log.txt") == "no output"


@pytest.mark.parametrize(
    "text",
    [
        '{"host": "x", "pid": "1", "started": "1", "job": "", "restart": 0, "beat": 7}',
        '{"host": 3, "pid": -1, "started": [], "job": {}, "restart": "0", "beat": null}',
        "[" * 500,
        "\xff" * 9,
    ],
)
def test_a_lock_that_nobody_wrote_keeps_nobody_out(tmp_path: Path, text: str) -> None:
    (tmp_path / ".lock").write_text(text)
    with locked(tmp_path):
        pass
