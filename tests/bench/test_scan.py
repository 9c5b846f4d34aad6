"""Scans: what is measured, what is kept, and how an interrupted one goes on."""

import dataclasses
import json
from pathlib import Path

import pytest

from mixit_titan.bench.run import run_point
from mixit_titan.bench.scan import point_name, scan, write_scan
from mixit_titan.bench.settings import Point
from mixit_titan.bench.steps import Steps

VARIANTS = ("standard", "mixit")


def lengths(point: Point, *values: int, **settings: str) -> list[Point]:
    shapes = [dataclasses.replace(point.shape, seq_len=value) for value in values]
    return [dataclasses.replace(point, shape=shape, **settings) for shape in shapes]


class Runner:
    """Measures in this process, and stops as if by Ctrl-C before measuring `stop_at`."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.measured: list[int] = []
        self.stop_at = stop_at

    def __call__(self, point: Point, place: Path) -> None:
        if point.shape.seq_len == self.stop_at:
            raise KeyboardInterrupt
        self.measured.append(point.shape.seq_len)
        place.mkdir(parents=True)
        (place / "bench.json").write_text(json.dumps(run_point(point, VARIANTS, 2)))


def test_an_interrupted_scan_goes_on_where_it_was(point: Point, tmp_path: Path) -> None:
    points = lengths(point, 4, 8, 16)
    arguments = (VARIANTS, 2, 1, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        scan(points, *arguments, first := Runner(stop_at=16), lambda text: None)
    assert first.measured == [4, 8]
    found = scan(points, *arguments, second := Runner(), lambda text: None)
    assert second.measured == [16]
    assert [p["settings"]["shape"]["seq_len"] for p in found["points"]] == [4, 8, 16]
    assert found["scanned"] == ["seq_len"]
    write_scan(found, tmp_path)
    assert json.loads((tmp_path / "bench.json").read_text()) == found
    assert (tmp_path / "bench.png").read_bytes()[1:4] == b"PNG"


def test_a_point_of_other_settings_or_cut_off_is_measured_again(
    point: Point, tmp_path: Path
) -> None:
    points = lengths(point, 4, 8)

    def run(point: Point, place: Path) -> None:
        measured.append(point.shape.seq_len)
        place.mkdir(parents=True, exist_ok=True)
        settings = {**point.as_json(), "rounds": 8, "ranks": 1}
        from mixit_titan.bench.environment import environment

        row = [{"variant": variant} for variant in VARIANTS]
        saved = {"settings": settings, "environment": environment(), "variants": row}
        (place / "bench.json").write_text(json.dumps(saved))

    def again(points: list[Point], variants: tuple[str, ...] = VARIANTS) -> list[int]:
        measured.clear()
        scan(points, variants, 8, 1, tmp_path, run, lambda text: None)
        return list(measured)

    measured: list[int] = []
    assert again(points) == [4, 8]
    assert again(points) == []
    (tmp_path / "points" / "seq_len-8" / "bench.json").write_text('{"settings": {"batch"')
    assert again(points) == [8]
    assert again(points, ("standard",)) == [4, 8]
    assert again([dataclasses.replace(p, batch=3) for p in points]) == [4, 8]


def test_points_that_differ_in_two_ways_have_names_of_their_own(point: Point) -> None:
    points = [p for c in (False, True) for p in lengths(point, 4, 8, compile=c)]
    names = {point_name(p, ["seq_len", "compile"]) for p in points}
    assert names == {f"seq_len-{m}_compile-{c}" for m in (4, 8) for c in ("on", "off")}


@pytest.mark.parametrize("ac", ["selective", "full"])
def test_checkpointing_is_measured_as_the_trainer_does_it(point: Point, ac: str) -> None:
    def blocks(point: Point) -> set[str]:
        return {type(block).__name__ for block in Steps("standard", point).model.layers.values()}

    assert blocks(point) == {"Block"}
    assert blocks(dataclasses.replace(point, ac=ac)) == {"CheckpointWrapper"}
