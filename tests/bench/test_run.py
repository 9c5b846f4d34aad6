"""Which model takes a step when, with models that only record it."""

from pathlib import Path

import pytest

from mixit_titan.bench import run
from mixit_titan.bench.measure import LEAST_WARM_UP
from mixit_titan.bench.memory import Peak
from mixit_titan.bench.run import run_point
from mixit_titan.bench.settings import Point
from mixit_titan.bench.steps import PHASES, Clock

VARIANTS = ("standard", "frozen_qk", "mixit")
ROUNDS = 8


class Noting:
    def __init__(self, variant: str, log: list[str]) -> None:
        self.variant, self.log = variant, log

    def step(self, clock: Clock, microbatches: int | None = None) -> None:
        self.log.append(self.variant)
        clock.start()
        for phase in PHASES:
            clock.lap(phase)

    def close(self) -> None:
        self.log.append(f"{self.variant} closed")


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("reason", ["", "asked", "memory"])
def test_variants_take_turns_unless_they_cannot(
    reason: str, point: Point, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []

    def build(variant: str, point: Point, folder: Path) -> Noting:
        return Noting(variant, log)

    monkeypatch.setattr(run, "build_steps", build)
    monkeypatch.setattr(run, "peak_memory", lambda build: Peak(accumulating=2, one_batch=1))
    monkeypatch.setattr("mixit_titan.bench.measure.STABLE", 1e9)  # warm at once
    if reason == "memory":
        monkeypatch.setattr(run, "fit_together", lambda point, variants: False)
    found = run_point(point, VARIANTS, ROUNDS, interleaved=reason != "asked")
    assert found["interleaved"] == (reason == "")
    assert [row["variant"] for row in found["variants"]] == list(VARIANTS)
    steps = 1 + LEAST_WARM_UP + ROUNDS
    if found["interleaved"]:
        taken, closed = log[: 3 * steps], log[3 * steps :]
        assert closed == [f"{variant} closed" for variant in VARIANTS]
        rounds = [taken[i : i + 3] for i in range(0, len(taken), 3)]
        assert all(sorted(names) == sorted(VARIANTS) for names in rounds)
        assert len({tuple(names) for names in rounds}) == 3  # another one begins each time
    else:  # only one is there at a time
        assert log == [n for v in VARIANTS for n in (*[v] * steps, f"{v} closed")]
