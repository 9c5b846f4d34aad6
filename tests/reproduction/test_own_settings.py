"""Models that stand beside each other in an exhibit have the same settings, but for what a grid
chose that all of them had."""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from mixit_titan.reproduction.depth import CHOICES
from mixit_titan.reproduction.exhibit import Exhibit
from mixit_titan.reproduction.exhibits import EXHIBITS
from mixit_titan.reproduction.jobs import Plan
from mixit_titan.reproduction.paper import TABLE_6
from mixit_titan.tasks.choice import FIRST_SEED, choices, read_choice
from mixit_titan.tasks.settings import Run

MODEL = {"variant", "stack", "recipe", "std"}
"""What a model is; the last two are of the mixing matrices alone."""
HEADS = {"table6": {"heads"}}
"""The paper itself gives MixiT others (Tables 5 and 9)."""

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
    own = [read_choice(file) for file in exhibit.choices if plan.scale == "cpu"]
    for (_, task), rows in by_column(exhibit, plan).items():
        made = own or [choice for name, choice in choices().items() if name == task]
        chosen = {key for choice in made for key in choice["grid"]}
        for key in rows[0].keys() - MODEL - chosen:
            if any(row[key] != rows[0][key] for row in rows):
                found.add(key)
    return found


@pytest.mark.parametrize("name", EXHIBITS)
def test_no_model_of_an_exhibit_has_a_setting_of_its_own(name: str, tmp_path: Path) -> None:
    plan = Plan("cpu", tmp_path, reviews=tmp_path / "reviews.csv")
    assert different(EXHIBITS[name], plan) == HEADS.get(name, set())


def test_depth_has_no_part_in_the_settings_of_table_6() -> None:
    """Both models start from the sizes that the authors' have at width 512, and the same grid was
    tried for both, of the shallowest models alone."""
    made = [read_choice(file) for file in CHOICES]
    assert [[*choice["variants"]] for choice in made] == [["mixit"], ["random"]]
    for key in ("grid", "seeds", "held_out", "rule", "preset"):
        assert made[0][key] == made[1][key]
    assert made[0]["held_out"] == "validation" and min(made[0]["seeds"]) >= FIRST_SEED
    assert {"layers", "init_std", "embedding_std"}.isdisjoint(made[0]["grid"])
    for choice in made:
        ((variant, found),) = choice["variants"].items()
        settings = found["settings"]
        assert settings["layers"] == min(map(int, TABLE_6[variant]))
        assert settings["init_std"] == pytest.approx(0.02 * (512 / 64) ** 0.5, rel=1e-3)
        assert settings["embedding_std"] == 0.02 and settings["width"] == 64
        best = max(found["tried"], key=lambda place: (place["accuracy"], -place["loss"]))
        assert found["chosen"] == best["settings"]
        places = [place["settings"] for place in found["tried"]]
        grid = itertools.product(*choice["grid"].values())
        assert places == [dict(zip(choice["grid"], values, strict=True)) for values in grid]
    first, second = (next(iter(choice["variants"].values()))["settings"] for choice in made)
    different = {key for key in first | second if first.get(key) != second.get(key)}
    assert different - MODEL == {"heads"}


def test_table_6_has_what_was_chosen_and_says_so(tmp_path: Path) -> None:
    plan = Plan("cpu", tmp_path, seeds=1)
    note = EXHIBITS["table6"].note(plan)
    for variant, row in EXHIBITS["table6"].cells(plan).items():
        file = next(file for file in CHOICES if file.stem.endswith(variant))
        chosen = json.loads(file.read_text())["variants"][variant]["chosen"]
        for layers, cell in row.items():
            settings = cell.jobs[0].arguments[0].settings
            assert settings.layers == int(layers)
            assert {key: getattr(settings, key) for key in chosen} == chosen
        assert all(f"{key} {value:g}" in note for key, value in chosen.items())


def test_at_paper_scale_no_model_has_one(tmp_path: Path) -> None:
    for exhibit in EXHIBITS.values():
        assert different(exhibit, Plan("paper", tmp_path, search=False)) == set()
