"""The training budget of each of our results, and what was used: steps, examples and FLOPs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mixit_titan.config.toml import read_run
from mixit_titan.jobs.job import Job
from mixit_titan.model.accounting import count
from mixit_titan.model.shapes import find_flavor
from mixit_titan.model.variants import find_stack
from mixit_titan.reproduction.exhibit import Cell, Cells
from mixit_titan.tasks.models import flops_per_token
from mixit_titan.tasks.settings import Run


@dataclass(frozen=True)
class Budget:
    """The budget of one training run. FLOPs are counted as in `model/accounting.py`: lookups, norms
    and activations are free."""

    steps: int
    examples: int
    flops: float


def budget_of(job: Job) -> Budget | None:
    """The budget of a job that trains, or of the training run that it analyzes; else None."""
    match job.arguments:
        case Run() as run, _:
            return _of_task(run)
        case str() as config, list() as overrides, _:
            return _of_language_model(config, overrides)
    return budget_of(job.after[0]) if job.after else None


def _of_task(run: Run) -> Budget:
    examples = run.settings.steps * run.settings.batch
    flops = flops_per_token(run) * run.task.positions * examples
    return Budget(run.settings.steps, examples, flops)


def _of_language_model(config: str, overrides: list[str]) -> Budget:
    table = read_run(config, overrides)
    model, training = table["model"], table["training"]
    shape = find_flavor(str(model["flavor"]))
    if "vocab" in model:
        shape = replace(shape, vocab=int(model["vocab"]))
    steps = int(training["steps"])
    examples = steps * int(training["global_batch_size"])
    stack = find_stack(shape.layers, stack=model.get("stack"), variant=model.get("variant"))
    per_token = count(shape, stack).flops_per_token
    return Budget(steps, examples, float(per_token) * shape.seq_len * examples)


def budgets(cells: Cells) -> dict[str, dict[str, dict[str, Any]]]:
    """Row -> column -> the entry of report.json, for all results that need training."""
    found = {
        row: {column: said for column, cell in columns.items() if (said := _of_cell(cell))}
        for row, columns in cells.items()
    }
    return {row: columns for row, columns in found.items() if columns}


def _of_cell(cell: Cell) -> dict[str, Any] | None:
    """The budget of a result, equal for all its seeds; a solved run may have stopped earlier."""
    budget = budget_of(cell.jobs[0]) if cell.jobs else None
    if budget is None or cell.searches:
        return None
    took = [result["steps"] for job in cell.jobs if (result := job.result) and "steps" in result]
    return {
        "steps": budget.steps,
        "examples": budget.examples,
        "flops": budget.flops,
        "steps_taken": took,
        "stopped_early": sum(steps < budget.steps for steps in took),
    }


def unequal(found: Mapping[str, Mapping[str, Mapping[str, Any]]], *, along: bool) -> list[str]:
    """The columns whose rows had different budgets of steps or examples; with `along`, the rows
    whose columns had."""
    groups: dict[str, set[tuple[int, int]]] = {}
    for row, columns in found.items():
        for column, said in columns.items():
            key = row if along else column
            groups.setdefault(key, set()).add((said["steps"], said["examples"]))
    return [name for name, different in groups.items() if len(different) > 1]
