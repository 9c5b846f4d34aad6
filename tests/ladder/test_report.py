"""What a ladder reports about known laws: gaps and best sizes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mixit_titan.ladder.dial import flops_per_token, layer_parameters
from mixit_titan.ladder.grid import plan_runs
from mixit_titan.ladder.points import Point, frontier
from mixit_titan.ladder.scales import SCALES
from mixit_titan.model.variants import VARIANTS
from tests.ladder.conftest import LAWS, loss

CPU = SCALES["cpu"]


def test_a_ladder_finds_the_laws_of_its_stacks(ladder: Callable[..., Path]) -> None:
    folder = ladder()
    found = json.loads((folder / "ladder.json").read_text())
    assert found["bigram"] == 2.5  # of conftest.py
    assert "A bigram table" in (folder / "ladder.md").read_text()
    assert len(found["runs"]) == found["runs_planned"] and not found["left_out"]
    for stack, constants in LAWS.items():
        names = ("E", "A", "alpha", "B", "beta")
        fitted = [found["fits"][stack]["surface"][name]["value"] for name in names]
        assert fitted == pytest.approx(constants, rel=0.02)
        # The frontier is above what the best size of each budget would come to.
        assert 0.1 < found["fits"][stack]["curve"]["gamma"]["value"] < 0.35
    _gaps(found)
    _best_sizes(found)


def _gaps(found: dict) -> None:
    rungs = found["gaps"]["frozen_qk"]["rungs"]
    assert [gap["depth"] for gap in rungs] == [2, 3, 4, 5, 6]
    for gap in rungs:
        n = layer_parameters(CPU.dial.shape(gap["depth"], 320), VARIANTS["standard"])
        expected = (60 - 40) / n**0.4  # of the two A, at the same N and D
        assert gap["measured"] == pytest.approx(expected)
        assert gap["fitted"] == pytest.approx(expected, rel=0.02)
        low, high = gap["interval"]
        assert low <= gap["fitted"] <= high
    assert found["gaps"]["frozen_qk"]["trend"]["verdict"] == "closes"
    # mixit has fewer parameters at a depth, which matters less the larger it is.
    assert found["gaps"]["mixit"]["rungs"][-1]["fitted"] == pytest.approx(0.3, abs=0.05)


def _best_sizes(found: dict) -> None:
    for best in found["best_size"]["standard"]:
        losses = {}
        for depth in range(1, 19):
            shape = CPU.dial.shape(depth, 320)
            tokens = best["budget"] / flops_per_token(shape, VARIANTS["standard"])
            n = layer_parameters(shape, VARIANTS["standard"])
            losses[depth] = loss("standard", n, tokens)
        assert best["depth"] == min(losses, key=losses.get)
        assert best["loss"] == pytest.approx(min(losses.values()), rel=1e-3)
        assert best["depths"][0] <= best["depth"] <= best["depths"][1]


def test_runs_of_one_budget_are_compared_although_they_differ_by_a_step() -> None:
    """The budgets of a real grid: the best run of each, however many FLOPs rounding leaves it."""
    runs = [run for run in plan_runs(CPU, 320, 1) if run.stack == "standard" and run.budget]
    points = [Point(run, str(n), loss("standard", run.params, run.tokens), None)
              for n, run in enumerate(runs)]  # fmt: skip
    assert len({run.flops for run in runs}) > len(CPU.budgets)
    best = [min((p for p in points if p.run.budget == budget), key=lambda p: p.loss)
            for budget in CPU.budgets]  # fmt: skip
    assert frontier(points) == best
