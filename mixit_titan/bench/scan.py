"""Several points: each in a process of its own, because what an allocator keeps from one shape
changes the speed of the next. A scan that was interrupted goes on with the points it lacks."""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mixit_titan.bench.figures import axis_value, draw_scan
from mixit_titan.bench.settings import Point
from mixit_titan.files import write_json
from mixit_titan.versions import environment

AXES = ("seq_len", "width", "batch", "compile", "ac", "dtype")
"""What can be scanned; the first of them that is becomes the picture's horizontal axis."""


def scan(
    points: Sequence[Point],
    variants: Sequence[str],
    rounds: int,
    ranks: int,
    folder: Path,
    run: Callable[[Point, Path], None],
    note: Callable[[str], None],
) -> dict[str, Any]:
    """Measure the points that are not there yet; returns what the scan's bench.json holds. `run`
    measures one point and writes bench.json into the folder given to it."""
    axes = scanned(points)
    found = []
    for point in points:
        place = folder / "points" / point_name(point, axes)
        wanted = {**point.as_json(), "rounds": rounds, "ranks": ranks}
        saved = read_point(place, wanted, variants)
        if saved is None:
            note(f"measuring {place.name}")
            run(point, place)
            saved = json.loads((place / "bench.json").read_text())
        else:
            note(f"{place.name} was measured before")
        found.append(saved)
    return {"scanned": axes, "points": found}


def scanned(points: Sequence[Point]) -> list[str]:
    """The axes along which the points differ."""
    settings = [point.as_json() for point in points]
    return [axis for axis in AXES if len({axis_value(s, axis) for s in settings}) > 1]


def point_name(point: Point, axes: Sequence[str]) -> str:
    settings = point.as_json()
    return "_".join(f"{axis}-{axis_value(settings, axis)}" for axis in axes)


def read_point(
    place: Path, wanted: dict[str, Any], variants: Sequence[str]
) -> dict[str, Any] | None:
    """A point that was measured with the same settings, on the same machine, with the same code."""
    try:
        saved = json.loads((place / "bench.json").read_text())
        same = saved["settings"] == wanted and _same_environment(saved)
        measured = [row["variant"] for row in saved["variants"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return saved if same and measured == list(variants) else None


def _same_environment(saved: dict[str, Any]) -> bool:
    here = environment()
    if saved["settings"]["ranks"] > 1:  # ranks share the cores: each has fewer threads
        here["threads"] = saved["environment"]["threads"]
    return saved["environment"] == here


def write_scan(found: dict[str, Any], folder: Path) -> None:
    write_json(folder / "bench.json", found)
    axis, *others = found["scanned"]

    def label(point: dict[str, Any]) -> str:
        return ", ".join(
            f"{o.replace('_', ' ')} {axis_value(point['settings'], o)}" for o in others
        )

    ordered = sorted(found["points"], key=label)
    lines = {text: list(points) for text, points in itertools.groupby(ordered, key=label)}
    draw_scan(lines, axis, folder / "bench.png")
