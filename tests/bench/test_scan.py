"""Scans: what is measured, what is kept, and how an interrupted one resumes."""

import contextlib
import dataclasses
import json
from functools import partial
from pathlib import Path

import pytest

from mixit_titan.bench.measure import Times
from mixit_titan.bench.memory import Peak
from mixit_titan.bench.run import result
from mixit_titan.bench.scan import point_name, scan_jobs, write_scan
from mixit_titan.bench.settings import Point
from mixit_titan.bench.steps import PHASES
from mixit_titan.files import write_json
from mixit_titan.jobs.job import Job
from mixit_titan.jobs.runner import Runner

VARIANTS = ("standard", "mixit")
ROUNDS = 8


def lengths(point: Point, *values: int, **settings: str) -> list[Point]:
    return [dataclasses.replace(point, seq_len=value, **settings) for value in values]


class Process:
    """Stands in for the process of a job: writes a point as if it had been measured."""

    exitcode = 0

    def __init__(self, job: Job, share: int) -> None:
        assert share == 1
        number, folder = job.arguments
        taken = Times(phases=[dict.fromkeys(PHASES, 0.25)] * ROUNDS, cpu=[1.0] * ROUNDS)
        peak = Peak(accumulating=1, one_batch=1)
        given = job.work.keywords
        times, peaks = ({v: part for v in given["variants"]} for part in (taken, peak))
        write_json(folder / "bench.json", result(given["points"][number], times, peaks))

    def is_alive(self) -> bool:
        return False


def measure(
    number: int, folder: Path, *, points: list[Point], variants: tuple[str, ...]
) -> None: ...


def scan(
    points: list[Point],
    out: Path,
    variants: tuple[str, ...] = VARIANTS,
    stop_after: int | None = None,
) -> list[int]:
    """Lengths of the points that are measured; as by Ctrl-C after that of `stop_after`."""
    measured = []

    def ended(job: Job) -> None:
        measured.append(points[job.arguments[0]].seq_len)
        if measured[-1] == stop_after:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mixit_titan.jobs.process.start", Process)
        work = partial(measure, points=points, variants=variants)
        with contextlib.suppress(KeyboardInterrupt):
            Runner(scan_jobs(points, variants, ROUNDS, out, work)).run(ended)
    return measured


def test_an_interrupted_scan_resumes_where_it_was(point: Point, tmp_path: Path) -> None:
    points = lengths(point, 4, 8, 16)
    assert scan(points, tmp_path, stop_after=8) == [4, 8]
    assert scan(points, tmp_path) == [16]
    jobs = scan_jobs(points, VARIANTS, ROUNDS, tmp_path, measure)
    found = write_scan(points, jobs, tmp_path)
    assert [p["settings"]["seq_len"] for p in found["points"]] == [4, 8, 16]
    assert found["scanned"] == ["seq_len"]
    assert json.loads((tmp_path / "bench.json").read_text()) == found
    assert (tmp_path / "bench.png").read_bytes()[1:4] == b"PNG"


def test_a_point_of_other_settings_or_cut_off_is_measured_again(
    point: Point, tmp_path: Path
) -> None:
    points = lengths(point, 4, 8)
    assert scan(points, tmp_path) == [4, 8]
    assert scan(points, tmp_path) == []
    (tmp_path / "points" / "seq_len-8" / "bench.json").write_text('{"settings": {"batch"')
    assert scan(points, tmp_path) == [8]
    assert scan(points, tmp_path, ("standard",)) == [4, 8]
    others = [dataclasses.replace(p, batch=3) for p in points]
    assert scan(others, tmp_path, ("standard",)) == [4, 8]
    # A key of the run that is no setting of its own.
    others = [dataclasses.replace(p, run={**p.run, "optimizer": {"lr": 1.0}}) for p in others]
    assert scan(others, tmp_path, ("standard",)) == [4, 8]
    assert scan(others, tmp_path, ("standard",)) == []


def test_points_that_differ_in_two_ways_have_names_of_their_own(point: Point) -> None:
    points = [p for c in (False, True) for p in lengths(point, 4, 8, compile=c)]
    names = {point_name(p, ["seq_len", "compile"]) for p in points}
    assert names == {f"seq_len-{m}_compile-{c}" for m in (4, 8) for c in ("on", "off")}
