"""The exhibit of stacks: what is run, that nothing but the layers differs, and what is said."""

import dataclasses
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mixit_titan.files import write_json, write_text
from mixit_titan.jobs.job import Job
from mixit_titan.reproduction.budget import budget_of, budgets, unequal
from mixit_titan.reproduction.exhibit import Cell, Cells, jobs_of, measure
from mixit_titan.reproduction.exhibits import EXHIBITS, find_exhibits
from mixit_titan.reproduction.jobs import Plan, stack_point

from .conftest import TINY

STACKS = EXHIBITS["stacks"]
ATTENTION = {  # which of the layers 0 to 3 attend
    "mixit": "",
    "mixit standard@first": "0",
    "mixit standard@1": "1",
    "mixit standard@2": "2",
    "mixit standard@last": "3",
    "mixit standard@lower": "01",
    "mixit standard@upper": "23",
    "mixit standard": "13",
    "standard mixit@first": "123",
    "standard mixit@last": "012",
    "standard": "0123",
}
TASKS = ("retrieval", "k-hop")
LANGUAGE = "language model (bits per byte)"


def test_it_is_run_on_demand_with_three_seeds(tmp_path: Path) -> None:
    assert "stacks" not in [exhibit.id for exhibit in find_exhibits([])]
    cells = STACKS.cells(Plan("cpu", tmp_path))
    assert [*cells] == [*ATTENTION]
    for row in cells.values():
        for column, cell in row.items():
            seeds = [job.settings["seed"] for job in cell.jobs]
            assert seeds == ([] if column == "attention layers" else [400, 401, 402])
    assert len(jobs_of(cells)) == 78


def test_the_layers_are_what_the_row_says(tmp_path: Path) -> None:
    for stack, row in STACKS.cells(Plan("cpu", tmp_path)).items():
        share = row["attention layers"].measured
        assert share.exact and share.mean == len(ATTENTION[stack]) / 4
        for column in TASKS:
            for job in row[column].jobs:
                settings = job.arguments[0].settings
                pairs = settings.layer_stack().fill(settings.layers)
                mixers = ["attention" if str(n) in ATTENTION[stack] else "mixing" for n in range(4)]
                assert [pair.mixer for pair in pairs] == mixers
                assert not any(pair.frozen for pair in pairs)


def test_stacks_differ_in_their_layers_only(tmp_path: Path) -> None:
    """And where a layer mixes, all have the same matrices. What was chosen for mixit or standard
    alone is not taken."""
    cells = STACKS.cells(Plan("cpu", tmp_path))
    for column in TASKS:
        runs = [row[column].jobs[1].arguments[0] for row in cells.values()]
        same = {json.dumps(_without(run.described(), "stack", "recipe", "std")) for run in runs}
        assert len(same) == 1
        mixing = [(run.settings.recipe, run.settings.std) for run in runs]
        assert mixing == [("paper", "length")] * 10 + [(None, None)]
    assert unequal(budgets(cells), along=False) == []


def _without(described: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in described.items() if key not in keys}


def test_the_ends_are_the_language_models_of_table_2(tmp_path: Path) -> None:
    plan = Plan("cpu", tmp_path)
    table_2 = EXHIBITS["table2"].cells(plan)
    ours = STACKS.cells(plan)
    for variant in ("mixit", "standard"):
        theirs = [job.folder for job in table_2[variant]["Python sources"].jobs]
        assert [job.folder for job in ours[variant][LANGUAGE].jobs] == theirs[:3]
    hybrid = ours["mixit standard@last"][LANGUAGE].jobs[2]
    words = hybrid.arguments[1]
    assert words[words.index("--model.stack") + 1] == "mixit standard@last"
    assert words[words.index("--model.mixing.seed") + 1] == "402"
    assert "--model.variant" not in words


def test_the_budget_of_a_hybrid_language_model(tmp_path: Path) -> None:
    """Of 4 layers of width n = 128 and length m = 128: one attends, with 4 n^2 weights and 6 m n;
    three mix, with 2 n^2 and 2 m n."""
    cells = STACKS.cells(Plan("cpu", tmp_path, steps=20))
    found = budget_of(cells["mixit standard@last"][LANGUAGE].jobs[0])
    n = m = 128
    matrices = (4 + 3 * 2) * n * n + 4 * 3 * n * 512 + 512 * n
    mixers = 6 * m * n + 3 * 2 * m * n
    assert found.flops == (6 * matrices + mixers) * m * 20 * 16


def finish(job: Job, value: float) -> None:
    """As if it had been run."""
    if job.kind == "debug_standard":
        line = {"step": 300, "validation_loss": 1.0, "perplexity": 2.0, "bits_per_byte": value}
        write_text(job.folder / "metrics.jsonl", json.dumps(line) + "\n")
        return
    result = {"task": job.kind, "variant": "?", "loss": 1.0, "accuracy": value, "exact": 0.0}
    result |= {"trainable_params": 1, "params": 1, "steps": 1, "seconds": 1.0, "slices": {}}
    write_json(job.folder / "result.json", result | {"settings": job.arguments[0].described()})


def test_the_note_says_what_one_layer_does_where_all_is_run(tmp_path: Path) -> None:
    plan = Plan("cpu", tmp_path, seeds=2)
    cells = STACKS.cells(plan)
    assert STACKS.note(plan).endswith("batch size and steps.")  # nothing is run
    accuracy = dict(zip(ATTENTION, (10, 40, 90, 20, 30, 99, 50, 99, 99, 99, 98), strict=True))
    losses = {"mixit": 3.0, "mixit standard@first": 2.0, "mixit standard@last": 2.5}
    for stack, row in cells.items():
        for seed, job in enumerate(row["retrieval"].jobs):
            finish(job, (accuracy[stack] + seed) / 100)
        for job in row[LANGUAGE].jobs if LANGUAGE in row else ():
            finish(job, losses.get(stack, 1.5))
    said = STACKS.note(plan)
    assert said.endswith(
        "one attention layer of four: retrieval from 20.50% with `mixit standard@2` to 90.50% with "
        "`mixit standard@1` (none: 10.50%, all: 98.50%); language model (bits per byte) from 2.500 "
        "with `mixit standard@last` to 2.000 with `mixit standard@first` (none: 3.000, all: 1.500)."
    )
    alt = STACKS.draw(measure(STACKS, cells), tmp_path / "stacks.png")
    assert (tmp_path / "stacks.png").read_bytes()[1:4] == b"PNG"
    assert "mixit standard@1: retrieval 90.50%." in alt and "k-hop" not in alt


def tiny_cells(plan: Plan) -> Cells:
    own = TINY | {"heads": 2, "layers": 4}
    return {
        stack: {
            "attention layers": Cell(counted=len(ATTENTION[stack]) / 4),
            "retrieval": Cell((stack_point(plan, "addition", stack, **own),)),
        }
        for stack in ("mixit", "mixit standard@2")
    }


def test_the_command_prints_the_figures_and_reports_no_choice(
    command: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    tiny = dataclasses.replace(STACKS, cells=tiny_cells)
    words = ["--only", "stacks", "--seeds", "2", "--out", str(tmp_path)]
    for job in jobs_of(tiny_cells(Plan("cpu", tmp_path, seeds=2))):
        finish(job, 0.5)
    command(*words, stacks=tiny)
    printed = capsys.readouterr().out
    assert "Does the paper's claim" not in printed and "mixit standard@2" in printed
    (entry,) = json.loads((tmp_path / "report.json").read_text())["exhibits"]
    assert entry["columns"] == ["attention layers", "retrieval"] and entry["claims"] == []
    assert entry["choices"] == {}  # a choice for addition is not what these runs have
    assert [row["cells"][0]["text"]["ours"] for row in entry["rows"]] == ["0%", "25%"]
    text = (tmp_path / "report.md").read_text()
    assert (
        "| mixit standard@2 | 25% | 50.00% (50.00% to 50.00%) |" in text
        and shlex.join(words[:2]) in text
    )
