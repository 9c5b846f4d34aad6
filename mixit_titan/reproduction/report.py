"""report.json, report.md and report.html: every exhibit with the paper's results and ours."""

import shlex
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from mixit_titan.files import write_json, write_text
from mixit_titan.jobs.job import Job
from mixit_titan.reproduction import film_reviews
from mixit_titan.reproduction.budget import budgets, unequal
from mixit_titan.reproduction.differences import differences
from mixit_titan.reproduction.exhibit import Cells, Exhibit, Shown, jobs_of, measure
from mixit_titan.reproduction.jobs import Plan
from mixit_titan.reproduction.markdown import markdown_report, summary
from mixit_titan.reproduction.measured import RESAMPLES
from mixit_titan.reproduction.page import html_page
from mixit_titan.reproduction.paper import INCONSISTENCIES
from mixit_titan.reproduction.summary import draw_summary
from mixit_titan.reproduction.verdicts import MOST, NOT_RUN, cell_name, judge
from mixit_titan.tasks.choice import FIRST_SEED, choices, read_choice
from mixit_titan.tasks.settings import Run
from mixit_titan.versions import environment


def write_report(
    plan: Plan, planned: dict[str, tuple[Exhibit, Cells]], failed: Collection[Path]
) -> dict:
    """Write the report on all finished jobs; returns the content of report.json."""
    entries = [_entry(plan, exhibit, cells, failed) for exhibit, cells in planned.values()]
    claims = [claim for entry in entries for claim in entry["claims"]]
    jobs = {job.folder: job for _, cells in planned.values() for job in jobs_of(cells)}
    found = {
        "scale": plan.scale,
        "first_seed": plan.first_seed,
        "seeds": plan.seeds,
        "steps": plan.steps,
        "method": {
            "interval": 0.95,
            "resamples": RESAMPLES,
            "share_to_hold": MOST,
            "seeds_of_choices_from": FIRST_SEED,
        },
        "environment": environment(),
        "seconds": round(sum(job.seconds for job in jobs.values()), 1),
        "claims": claims,
        "summary": _summary(claims, plan.out),
        "exhibits": entries,
        "differences": differences(plan),
        "inconsistencies": INCONSISTENCIES,
    }
    write_json(plan.out / "report.json", found)
    write_text(plan.out / "report.md", markdown_report(found))
    write_text(plan.out / "report.html", html_page(found, summary(found), plan.out))
    return found


def _summary(claims: list[dict[str, Any]], out: Path) -> dict[str, Any]:
    alt = draw_summary(claims, out / "figures" / "summary.png")
    caption = (
        "The effect size of every claim, in the paper and here, with 95% intervals. Effect sizes "
        "need not agree, as models and tasks are smaller: the claim alone decides the verdict."
    )
    return {"figure": "figures/summary.png" if alt else None, "alt": alt or "", "caption": caption}


def _entry(plan: Plan, exhibit: Exhibit, cells: Cells, failed: Collection[Path]) -> dict[str, Any]:
    shown = measure(exhibit, cells)
    jobs = jobs_of(cells)
    left = [job for job in jobs if job.result is None]
    costs = budgets(cells)
    different = unequal(costs, along=exhibit.row == "task")
    return {
        "id": exhibit.id,
        "title": exhibit.title,
        "setting": _setting(jobs),
        "notes": [
            *_notes(exhibit.note(plan), left, len(jobs), failed),
            *(f"unequal budgets: {name}" for name in different),
        ],
        "row": exhibit.row,
        "column": exhibit.column,
        "columns": shown.columns,
        "rows": _rows(shown),
        **_figure(shown, plan.out),
        "budgets": costs,
        "unequal_budgets": different,
        "choices": _choices(exhibit, jobs) if plan.scale == "cpu" else {},
        "command": _command(plan, exhibit.id),
        "jobs": len(jobs),
        "jobs_left": len(left),
        "seconds": round(sum(job.seconds for job in jobs), 1),
        "claims": judge(exhibit.claims, exhibit.paper, shown.ours, exhibit.units),
    }


def _rows(shown: Shown) -> list[dict[str, Any]]:
    return [
        {"name": row, "cells": [_cell(shown, row, column) for column in shown.columns]}
        for row in shown.rows
    ]


def _cell(shown: Shown, row: str, column: str) -> dict[str, Any]:
    """The values of a cell and their text, which is "" for a result that is not planned."""
    unit = shown.exhibit.unit(column)
    paper = shown.exhibit.paper.get(row, {}).get(column)
    asked = column in shown.ours.get(row, {})
    ours = shown.ours.get(row, {}).get(column)
    interval = ours and not ours.exact and ours.interval(unit, cell_name(row, column))
    return {
        "paper": paper,
        "values": ours and dict(ours.values),
        "mean": ours and ours.mean,
        "interval": interval or None,
        "text": {
            "ours": unit.show(ours.mean) if ours else NOT_RUN if asked else "",
            "interval": " to ".join(map(unit.show, interval)) if interval else "",
            "paper": "" if paper is None else unit.show(paper),
        },
    }


def _figure(shown: Shown, out: Path) -> dict[str, Any]:
    """The figure, drawn if there is any result of ours to show."""
    exhibit = shown.exhibit
    path = out / "figures" / f"{exhibit.id}.png"
    alt = None
    if any(job.result is not None for job in _own_jobs(shown.cells)):
        path.parent.mkdir(parents=True, exist_ok=True)
        alt = exhibit.draw(shown, path)
    figure = None if alt is None else str(path.relative_to(out))
    return {"figure": figure, "alt": alt or "", "caption": exhibit.caption}


def _own_jobs(cells: Cells) -> list[Job]:
    return [job for row in cells.values() for cell in row.values() for job in cell.jobs]


def _setting(jobs: Iterable[Job]) -> str:
    """The settings of the jobs: `retrieval: pairs 2/4/7/10, layers 2, ...; hop: ...`."""
    tasks: dict[str, dict[str, dict[str, None]]] = {}
    for job in jobs:
        keys = tasks.setdefault(job.settings["task"], {})
        for key, value in job.settings.items():
            if key != "task" and value is not None:
                text = f"{value:,}" if isinstance(value, int) else str(value)
                keys.setdefault(key, {})[text] = None
    parts = []
    for task, keys in tasks.items():
        said = [f"{key.replace('_', ' ')} {'/'.join(values)}" for key, values in keys.items()]
        parts.append(f"{task}: {', '.join(said)}")
    return "; ".join(parts)


def _notes(note: str, left: list[Job], total: int, failed: Collection[Path]) -> list[str]:
    notes = [note] if note else []
    broken = [job for job in left if job.folder in failed]
    notes += [f"failed: {job.name}, see {job.log}" for job in broken]
    if len(left) > len(broken):
        notes.append(f"not run yet: {len(left) - len(broken)} of {total} jobs")
    return notes


def _choices(exhibit: Exhibit, jobs: Iterable[Job]) -> dict[str, Any]:
    """The files of `sweep --choose` that settings come from, by name. Stacks have no chosen
    settings."""
    tasks = {job.settings["task"] for job in jobs if not _of_stack(job)}
    own = {file.stem: read_choice(file) for file in exhibit.choices}
    folder = "reproduction" if own else "tasks"
    return {
        name: {
            "file": f"mixit_titan/{folder}/choices/{name}.json",
            **{key: choice[key] for key in ("held_out", "seeds", "grid", "rule")},
            "chosen": {variant: each["chosen"] for variant, each in choice["variants"].items()},
        }
        for name, choice in (own or choices()).items()
        if choice["task"] in tasks
    }


def _of_stack(job: Job) -> bool:
    return any(isinstance(run, Run) and run.settings.stack for run in job.arguments)


def _command(plan: Plan, exhibit: str) -> str:
    """The command that reproduces an exhibit."""
    words = ["mixit-titan", "reproduce", "--scale", plan.scale, "--only", exhibit]
    options = ("first_seed", "seeds", "steps", "text", "reviews", "out")
    for key in options:
        value = getattr(plan, key)
        if value not in (None, 0, plan.out / film_reviews.NAME):  # downloaded by default
            words += [f"--{key.replace('_', '-')}", str(value)]
    words += [] if plan.search else ["--no-search"]
    return shlex.join(words)
