"""Steps, examples and FLOPs against arithmetic that is done here."""

from dataclasses import replace
from pathlib import Path

import pytest

from mixit_titan.reproduction.budget import budget_of, budgets, unequal
from mixit_titan.reproduction.exhibit import Cell
from mixit_titan.reproduction.exhibits import EXHIBITS
from mixit_titan.reproduction.jobs import Plan, task_point
from mixit_titan.reproduction.markdown import budget_text

TINY = {"width": 8, "heads": 2, "layers": 3, "batch": 5, "steps": 7, "digits": 2}


def test_a_task_counts_what_it_multiplies(tmp_path: Path) -> None:
    """6 FLOPs for each weight of a matrix that is trained and 4 for a frozen one, and attention of
    6 m n a layer, for every token."""
    plan = Plan("cpu", tmp_path, seeds=1)
    standard, frozen = (
        task_point(plan, "addition", variant, **TINY)[0] for variant in ("standard", "frozen_mlp")
    )
    task = standard.arguments[0].task
    n, m = 8, task.positions
    mlp = 3 * 3 * n * 4 * n
    matrices = 3 * 4 * n * n + mlp + n * task.token_count
    expected = (6 * matrices + 3 * 6 * m * n) * m * 5 * 7
    found = budget_of(standard)
    assert (found.steps, found.examples, found.flops) == (7, 35, expected)
    assert budget_of(frozen).flops == expected - 2 * mlp * m * 5 * 7


def test_a_language_model_reads_its_config(tmp_path: Path) -> None:
    """Flavor debug: 4 layers of width 128, MLP 512, 512 tokens, length 128."""
    plan = Plan("cpu", tmp_path, seeds=1, steps=20)
    cell = EXHIBITS["table2"].cells(plan)["standard"]["Python sources"]
    found = budget_of(cell.jobs[0])
    matrices = 4 * (4 * 128**2 + 3 * 128 * 512) + 512 * 128
    per_token = 6 * matrices + 4 * 6 * 128 * 128
    assert (found.steps, found.examples) == (20, 20 * 16)
    assert found.flops == per_token * 128 * 20 * 16


def test_an_analysis_has_the_budget_of_what_it_looks_into(tmp_path: Path) -> None:
    plan = Plan("cpu", tmp_path, seeds=1)
    cells = EXHIBITS["figure3"].cells(plan)
    assert budget_of(cells["induction head"]["uniform"].jobs[0]) == budget_of(
        cells["the model"]["accuracy"].jobs[0]
    )


def test_counts_and_the_benchmark_have_none(tmp_path: Path) -> None:
    plan = Plan("cpu", tmp_path, seeds=1)
    assert budgets(EXHIBITS["throughput"].cells(plan)) == {}
    assert "trained" not in budgets(EXHIBITS["table4"].cells(plan))["mixit"]


def test_unequal_budgets_are_found(tmp_path: Path) -> None:
    plan = Plan("cpu", tmp_path, seeds=1)

    def cell(**own: int) -> Cell:
        return Cell((task_point(plan, "addition", "mixit", **(TINY | own)),))

    found = budgets({"a": {"x": cell(), "y": cell()}, "b": {"x": cell(), "y": cell(steps=8)}})
    assert unequal(found, along=False) == ["y"] and unequal(found, along=True) == ["b"]
    # As many examples in other batches is another budget too.
    found = budgets({"a": {"x": cell()}, "b": {"x": cell(batch=7, steps=5)}})
    assert unequal(found, along=False) == ["x"]


@pytest.mark.parametrize(("took", "said"), [([7, 7], ""), ([3, 7], "1 of 2 solved it and stopped")])
def test_a_run_that_stopped_early_says_so(tmp_path: Path, took: list[int], said: str) -> None:
    plan = Plan("cpu", tmp_path, seeds=2)
    jobs = task_point(plan, "addition", "mixit", **TINY)
    done = tuple(
        replace(job, read=lambda folder, n=steps: {"accuracy": 1.0, "steps": n})
        for job, steps in zip(jobs, took, strict=True)
    )
    (found,) = budgets({"a": {"x": Cell((done,))}})["a"].values()
    assert found["stopped_early"] == len(took) - took.count(7)
    assert said in budget_text(found) and ("solved" in budget_text(found)) == bool(said)


def test_the_budget_of_reviews_does_not_read_them(tmp_path: Path) -> None:
    """Two labels in place of a head of all words."""
    plan = Plan("cpu", tmp_path, seeds=1, reviews=tmp_path / "not there.csv")
    (job,) = task_point(plan, "yelp", "standard", width=8, heads=2, layers=1, batch=5, steps=7)
    matrices, m = 4 * 8 * 8 + 3 * 8 * 32, job.arguments[0].task.positions
    assert budget_of(job).flops == (6 * matrices + 6 * m * 8) * m * 35
