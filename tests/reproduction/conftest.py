"""Exhibits like the paper's, made from jobs that take a moment."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from mixit_titan.cli import main
from mixit_titan.reproduction.exhibit import Cell, Cells, Exhibit
from mixit_titan.reproduction.exhibits import EXHIBITS
from mixit_titan.reproduction.induction import heads_of
from mixit_titan.reproduction.jobs import Plan, task_point

TINY = {"width": 8, "batch": 4, "steps": 2, "test": 20, "digits": 2, "warmup": 1}


def _heads(plan: Plan) -> Cells:
    points = {n: task_point(plan, "addition", "mixit", heads=n, layers=1, **TINY) for n in (2, 4)}
    return {"addition": {str(n): Cell((point,)) for n, point in points.items()}}


def _depth(plan: Plan) -> Cells:
    """One point is also a point of the other exhibit."""
    return {
        variant: {
            str(n): Cell((task_point(plan, "addition", variant, heads=2, layers=n, **TINY),))
            for n in (1, 2)
        }
        for variant in ("mixit", "random")
    }


def _heads_of(plan: Plan) -> Cells:
    tiny = TINY | {"heads": 2, "layers": 2, "pairs": 4}
    del tiny["digits"]
    return heads_of(plan, task_point(plan, "retrieval", "frozen_qk", **tiny))


@pytest.fixture(scope="session")
def tiny_exhibits() -> dict[str, Exhibit]:
    """Figure 3 and Tables 5 and 6 of tiny models, and Table 1 as it is."""
    return {
        "table1": EXHIBITS["table1"],
        "figure3": dataclasses.replace(EXHIBITS["figure3"], cells=_heads_of),
        "table5": dataclasses.replace(EXHIBITS["table5"], cells=_heads, reviews=False),
        "table6": dataclasses.replace(EXHIBITS["table6"], cells=_depth),
    }


@pytest.fixture(scope="session")
def command(tiny_exhibits: dict[str, Exhibit], job_server: None) -> Callable[..., None]:
    """`mixit-titan reproduce` as a user types it, with the tiny exhibits in the paper's place."""

    def call(*words: str, **others: Exhibit) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name in [*EXHIBITS]:
                patch.delitem(EXHIBITS, name)
            for name, exhibit in (tiny_exhibits | others).items():
                patch.setitem(EXHIBITS, name, exhibit)
            patch.setattr("sys.argv", ["mixit-titan", "reproduce", *words])
            main()

    return call


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory: pytest.TempPathFactory, command: Callable[..., None]) -> Path:
    """The folder of a complete run."""
    out = tmp_path_factory.mktemp("reproduced")
    command("--only", "figure3,table5,table6", "--seeds", "2", "--out", str(out))
    return out
