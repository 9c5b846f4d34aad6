"""A forecast is frozen before the largest runs, holds for known laws, and cannot be changed
unnoticed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mixit_titan.errors import ConfigError, RunFailed
from mixit_titan.ladder.forecast import STAMP, _hash
from tests.ladder.conftest import loss

Ladder = Callable[..., Path]
SMALL = {"stacks": ("standard", "mixit")}


@pytest.fixture
def frozen(ladder: Ladder) -> Path:
    return ladder(forecast=True, **SMALL)


def read(out: Path, name: str) -> dict:
    return json.loads((out / name).read_text())


def test_the_forecast_is_made_without_the_largest_runs(frozen: Path, ladder: Ladder) -> None:
    forecast = read(frozen, "forecast.json")
    assert {row["depth"] for row in forecast["forecast"]} == {6}
    assert all(not point["largest"] for point in forecast["data"])
    for row in forecast["forecast"]:
        assert not (frozen / "runs" / row["folder"]).exists()
        truth = loss(row["stack"], row["params"], row["tokens"])
        assert row["surface"]["loss"] == pytest.approx(truth, rel=0.01)
    ladder(**SMALL)
    found = read(frozen, "ladder.json")["forecast"]
    assert found["changes"] == [] and found["sha256"] == forecast["sha256"]
    for row in found["runs"]:
        assert row["result"] == loss(row["stack"], row["params"], row["tokens"])
        low, high = row["surface"]["interval"]
        assert row["inside"] == (low <= row["result"] <= high)
    said = (frozen / "ladder.md").read_text()
    inside = sum(row["inside"] for row in found["runs"])
    assert "Forecast and result" in said and f"{inside} of 2 results lie inside" in said


def test_a_changed_figure_is_noticed(frozen: Path, ladder: Ladder) -> None:
    ladder(**SMALL)
    forecast = read(frozen, "forecast.json")
    forecast["forecast"][0]["surface"]["loss"] += 0.001
    (frozen / "forecast.json").write_text(json.dumps(forecast))
    with pytest.raises(RunFailed, match="was changed after it was frozen"):
        ladder(**SMALL)
    said = (frozen / "ladder.md").read_text()
    assert "The forecast is invalid, and is not shown" in said
    assert "Forecast and result" not in said and forecast["sha256"] not in said
    assert read(frozen, "ladder.json")["forecast"]["runs"] == []


def test_a_changed_figure_with_a_new_hash_is_noticed(frozen: Path, ladder: Ladder) -> None:
    """The largest runs carry the hash of what was frozen before they were started."""
    ladder(**SMALL)
    forecast = read(frozen, "forecast.json")
    forecast["forecast"][0]["surface"]["loss"] += 0.001
    del forecast["sha256"]
    (frozen / "forecast.json").write_text(json.dumps({**forecast, "sha256": _hash(forecast)}))
    with pytest.raises(RunFailed, match="was started under another forecast"):
        ladder(report=True, **SMALL)


def test_a_changed_result_is_noticed(frozen: Path, ladder: Ladder) -> None:
    folder = read(frozen, "forecast.json")["data"][0]["folder"]
    metrics = frozen / "runs" / folder / "metrics.jsonl"
    *lines, last = metrics.read_text().splitlines()
    last = json.dumps(json.loads(last) | {"validation_loss": 1.0})
    metrics.write_text("\n".join([*lines, last]) + "\n")
    with pytest.raises(RunFailed, match=f"{folder} had loss"):
        ladder(report=True, **SMALL)


def test_a_run_without_the_stamp_is_noticed(frozen: Path, ladder: Ladder) -> None:
    ladder(**SMALL)
    folder = read(frozen, "forecast.json")["forecast"][0]["folder"]
    (frozen / "runs" / folder / STAMP).unlink()
    with pytest.raises(RunFailed, match="was started without a forecast"):
        ladder(report=True, **SMALL)


def test_a_forecast_is_frozen_once(frozen: Path, ladder: Ladder) -> None:
    before = (frozen / "forecast.json").read_bytes()
    with pytest.raises(ConfigError, match=r"was frozen at .* without --forecast"):
        ladder(forecast=True, **SMALL)
    assert (frozen / "forecast.json").read_bytes() == before


def test_what_is_made_cannot_be_forecast(ladder: Ladder) -> None:
    ladder(**SMALL)
    with pytest.raises(ConfigError, match=r"comes too late: .* depth 6 .* has been started"):
        ladder(forecast=True, **SMALL)


def test_something_else_in_its_place_is_one_sentence(frozen: Path, ladder: Ladder) -> None:
    (frozen / "forecast.json").write_text('{"date": 3}')
    with pytest.raises(ConfigError, match="is not a forecast, or was changed"):
        ladder(**SMALL)


def test_too_little_for_a_forecast_says_how_much(ladder: Ladder) -> None:
    with pytest.raises(ConfigError, match=r"standard: .* needs at least 7 runs, and there are 4"):
        ladder(forecast=True, budgets=(), **SMALL)


def test_a_deleted_forecast_is_noticed(frozen: Path, ladder: Ladder) -> None:
    ladder(**SMALL)
    (frozen / "forecast.json").unlink()
    with pytest.raises(RunFailed, match=r"forecast.json is missing: .* has the hash of one"):
        ladder(report=True, **SMALL)
    assert "No forecast was frozen" not in (frozen / "ladder.md").read_text()


def test_a_lost_result_is_noticed(frozen: Path, ladder: Ladder) -> None:
    folder = read(frozen, "forecast.json")["data"][0]["folder"]
    (frozen / "runs" / folder / "metrics.jsonl").unlink()
    with pytest.raises(RunFailed, match=f"{folder} had loss .* and now has none"):
        ladder(report=True, **SMALL)


@pytest.mark.parametrize("other", [{"depths": (2, 3, 4)}, {"stacks": ("standard",)}])
def test_a_forecast_of_another_ladder_is_refused(
    frozen: Path, ladder: Ladder, other: dict[str, object]
) -> None:
    before = (frozen / "ladder.json").read_bytes()
    with pytest.raises(ConfigError, match="is of other runs"):
        ladder(report=True, **(SMALL | other))
    assert (frozen / "ladder.json").read_bytes() == before
