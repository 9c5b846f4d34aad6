"""Scans: what is measured, what is kept, and how an interrupted one goes on."""

import dataclasses
import json
from pathlib import Path

import pytest

from mixit_titan.bench.measure import Times
from mixit_titan.bench.memory import Peak
from mixit_titan.bench.run import result
from mixit_titan.bench.scan import point_name, scan, write_scan
from mixit_titan.bench.settings import Point
from mixit_titan.bench.steps import PHASES, Steps
from mixit_titan.files import write_text

VARIANTS = ("standard", "mixit")
ROUNDS = 8


def lengths(point: Point, *values: int, **settings: str) -> list[Point]:
    shapes = [dataclasses.replace(point.shape, seq_len=value) for value in values]
    return [dataclasses.replace(point, shape=shape, **settings) for shape in shapes]


class Runner:
    """Writes a point as if it had been measured; stops as by Ctrl-C before that of `stop_at`."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.measured: list[int] = []
        self.stop_at = stop_at

    def __call__(self, point: Point, place: Path) -> None:
        if point.shape.seq_len == self.stop_at:
            raise KeyboardInterrupt
        self.measured.append(point.shape.seq_len)
        taken = Times(phases=[dict.fromkeys(PHASES, 0.25)] * ROUNDS, cpu=[1.0] * ROUNDS)
        peak = Peak(accumulating=1, one_batch=1)
        found = result(point, dict.fromkeys(VARIANTS, taken), dict.fromkeys(VARIANTS, peak))
        write_text(place / "bench.json", json.dumps(found))


def test_an_interrupted_scan_goes_on_where_it_was(point: Point, tmp_path: Path) -> None:
    points = lengths(point, 4, 8, 16)
    arguments = (VARIANTS, ROUNDS, 1, tmp_path)
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

    def again(points: list[Point], variants: tuple[str, ...] = VARIANTS) -> list[int]:
        scan(points, variants, ROUNDS, 1, tmp_path, runner := Runner(), lambda text: None)
        return runner.measured

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
