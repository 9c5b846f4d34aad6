"""Measures several points, each in its own process, because what an allocator keeps from one shape
changes the speed of the next. An interrupted scan resumes with the points that are missing."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mixit_titan.bench.figures import axis_value, draw_scan
from mixit_titan.bench.form import MEASURED
from mixit_titan.bench.runs import AXES
from mixit_titan.bench.settings import Point
from mixit_titan.files import write_json
from mixit_titan.jobs.job import Job
from mixit_titan.reading import json_if_good
from mixit_titan.versions import environment


def scan_jobs(
    points: Sequence[Point],
    variants: Sequence[str],
    rounds: int,
    out: Path,
    measure: Callable[[int, Path], object],
) -> list[Job]:
    """Return a job for each point. `measure(number, folder)` writes the bench.json of that point
    into the folder."""

    def job(number: int, folder: Path) -> Job:
        wanted = {**points[number].as_json(), "rounds": rounds}
        return Job(
            folder=folder,
            name=folder.name,
            kind="point",
            work=measure,
            arguments=(number, folder),
            read=lambda folder: read_saved(folder, wanted, variants),
        )

    axes = scanned(points)
    return [job(n, out / "points" / point_name(p, axes)) for n, p in enumerate(points)]


def scanned(points: Sequence[Point]) -> list[str]:
    """Return the axes along which the points differ; the first is the horizontal axis of the
    figure."""
    settings = [point.as_json() for point in points]
    return [axis for axis in AXES if len({axis_value(s, axis) for s in settings}) > 1]


def point_name(point: Point, axes: Sequence[str]) -> str:
    """Return the name of a point's folder, made of its values along the axes."""
    settings = point.as_json()
    return "_".join(f"{axis}-{axis_value(settings, axis)}" for axis in axes)


def read_saved(
    place: Path, wanted: dict[str, Any], variants: Sequence[str]
) -> dict[str, Any] | None:
    """Return a point if it was measured with the same settings, on the same machine, with the same
    code."""
    saved = json_if_good(place / "bench.json", MEASURED)
    if saved is None or saved["settings"] != wanted or not _same_environment(saved):
        return None
    return saved if [row["variant"] for row in saved["variants"]] == list(variants) else None


def _same_environment(saved: dict[str, Any]) -> bool:
    here = environment()
    if saved["settings"]["ranks"] > 1:  # ranks share the cores, so each has fewer threads
        here["threads"] = saved["environment"]["threads"]
    return saved["environment"] == here


def write_scan(points: Sequence[Point], jobs: Sequence[Job], folder: Path) -> dict[str, Any]:
    """Write bench.json and bench.png for the points, whose jobs are done, and return the contents
    of the former."""
    axis, *others = scanned(points)
    measured = [job.result for job in jobs]
    found = {"scanned": [axis, *others], "points": measured}
    write_json(folder / "bench.json", found)

    def label(point: dict[str, Any]) -> str:
        return ", ".join(
            f"{o.replace('_', ' ')} {axis_value(point['settings'], o)}" for o in others
        )

    ordered = sorted(measured, key=label)
    lines = {text: list(same) for text, same in itertools.groupby(ordered, key=label)}
    draw_scan(lines, axis, folder / "bench.png")
    return found
