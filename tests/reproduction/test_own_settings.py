"""Models that stand beside each other in an exhibit have the same settings, but for what a grid
chose that all of them had."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from mixit_titan.reproduction.exhibit import Exhibit
from mixit_titan.reproduction.exhibits import EXHIBITS
from mixit_titan.reproduction.jobs import Plan
from mixit_titan.tasks.choice import choices
from mixit_titan.tasks.settings import Run

MODEL = {"variant", "stack", "recipe", "std"}
"""What a model is; the last two are of the mixing matrices alone."""
OWN = {"table6": {"init_std", "embedding_std", "weight_decay"}}
"""Those of `random`, which the report must say."""

Settings = dict[str, Any]


def by_column(exhibit: Exhibit, plan: Plan) -> dict[tuple[str, str], list[Settings]]:
    """(column, task) -> the settings of each row, of the first seed. Table 5's rows are tasks, and
    its columns the heads of one model: nothing stands beside each other there."""
    found: dict[tuple[str, str], list[Settings]] = {}
    for row in exhibit.cells(plan).values():
        for column, cell in row.items():
            for job in cell.jobs[:1]:
                if isinstance(run := job.arguments[0], Run):
                    plain = dataclasses.asdict(run.settings) | dataclasses.asdict(run.task)
                    found.setdefault((column, job.kind), []).append(plain)
    return found


def different(exhibit: Exhibit, plan: Plan) -> set[str]:
    """Settings in which the models of a column differ, beside what was chosen for each."""
    found = set()
    for (_, task), rows in by_column(exhibit, plan).items():
        chosen = {*choices()[task]["grid"]} if task in choices() else set()
        for key in rows[0].keys() - MODEL - chosen:
            if any(row[key] != rows[0][key] for row in rows):
                found.add(key)
    return found


@pytest.mark.parametrize("name", EXHIBITS)
def test_no_model_of_an_exhibit_has_a_setting_of_its_own(name: str, tmp_path: Path) -> None:
    plan = Plan("cpu", tmp_path, reviews=tmp_path / "reviews.csv")
    assert different(EXHIBITS[name], plan) == OWN.get(name, set())


@pytest.mark.parametrize("name", OWN)
def test_the_report_says_which_settings_are_one_models_own(name: str, tmp_path: Path) -> None:
    note = EXHIBITS[name].note(Plan("cpu", tmp_path))
    assert all(key in note for key in OWN[name])
    assert "not the best of a grid" in note


def test_at_paper_scale_no_model_has_one(tmp_path: Path) -> None:
    for exhibit in EXHIBITS.values():
        assert different(exhibit, Plan("paper", tmp_path, search=False)) == set()
