"""report.json, report.md and report.html: each exhibit with the paper's figures and ours."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from mixit_titan.files import write_json, write_text
from mixit_titan.jobs.job import Job
from mixit_titan.reproduction.claims import NOT_RUN, VERDICTS
from mixit_titan.reproduction.exhibit import Cells, Exhibit, Shown, jobs_of, measure
from mixit_titan.reproduction.jobs import Plan
from mixit_titan.reproduction.page import html_page
from mixit_titan.tables import markdown_table
from mixit_titan.versions import environment


def write_report(
    plan: Plan, planned: dict[str, tuple[Exhibit, Cells]], failed: Collection[Path]
) -> dict:
    """What the folders hold now; returns what is in report.json."""
    entries = [_entry(plan, exhibit, cells, failed) for exhibit, cells in planned.values()]
    found = {
        "scale": plan.scale,
        "seeds": plan.seeds,
        "steps": plan.steps,
        "environment": environment(),
        "exhibits": entries,
        "claims": [claim for entry in entries for claim in entry["claims"]],
    }
    write_json(plan.out / "report.json", found)
    write_text(plan.out / "report.md", _markdown(found))
    write_text(plan.out / "report.html", html_page(found, summary(found), plan.out))
    return found


def _entry(plan: Plan, exhibit: Exhibit, cells: Cells, failed: Collection[Path]) -> dict[str, Any]:
    shown = measure(exhibit, cells, failed)
    jobs = jobs_of(cells)
    left = [job for job in jobs if job.result is None]
    return {
        "id": exhibit.id,
        "title": exhibit.title,
        "setting": _setting(jobs),
        "notes": _notes(exhibit.note(plan), left, len(jobs), failed),
        "row": exhibit.row,
        "column": exhibit.column,
        "columns": shown.columns,
        "rows": _rows(shown),
        **_picture(shown, plan.out),
        "jobs": len(jobs),
        "jobs_left": len(left),
        "seconds": round(sum(job.seconds for job in jobs), 1),
        "claims": [claim.judge(exhibit.paper, shown.figures) for claim in exhibit.claims],
    }


def _rows(shown: Shown) -> list[dict[str, Any]]:
    """Values, and how they are written: "" is a figure that nobody asked for."""
    rows = []
    for row in shown.rows:
        entry: dict[str, Any] = {"name": row, "paper": [], "ours": [], "std": [], "text": []}
        for column in shown.columns:
            unit = shown.exhibit.unit(column)
            paper = shown.exhibit.paper.get(row, {}).get(column)
            ours = shown.ours.get(row, {}).get(column)
            asked = column in shown.ours.get(row, {})
            written = unit.show(ours.mean) if ours else NOT_RUN if asked else ""
            entry["paper"].append(paper)
            entry["ours"].append(ours.mean if ours else None)
            entry["std"].append(ours.std if ours else None)
            entry["text"].append(
                {
                    "ours": written,
                    "std": unit.show(ours.std) if ours and ours.std else "",
                    "paper": "" if paper is None else unit.show(paper),
                }
            )
        rows.append(entry)
    return rows


def _picture(shown: Shown, out: Path) -> dict[str, Any]:
    """Drawn where there is anything of ours to be seen."""
    exhibit = shown.exhibit
    measured = any(job.result is not None for job in _own_jobs(shown.cells))
    if not measured:
        return {"picture": None, "alt": "", "caption": exhibit.caption}
    path = out / "pictures" / f"{exhibit.id}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    alt = exhibit.draw(shown, path)
    return {"picture": str(path.relative_to(out)), "alt": alt, "caption": exhibit.caption}


def _own_jobs(cells: Cells) -> list[Job]:
    return [job for row in cells.values() for cell in row.values() for job in cell.jobs]


def _setting(jobs: Iterable[Job]) -> str:
    """`retrieval: pairs 2/4/7/10, layers 2, ...; hop: ...`, from the settings of the jobs."""
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


def _markdown(found: dict[str, Any]) -> str:
    lines = ["# The paper's tables and figures, and ours", "", summary(found), ""]
    claims = [
        (f"`{c['id']}` {c['says']}", f"**{c['verdict']}**", c["paper"], c["ours"])
        for c in found["claims"]
    ]
    lines.append(markdown_table(("claim", "verdict", "paper", "ours"), claims))
    for entry in found["exhibits"]:
        lines += [f"## {entry['title']}", "", _figures(entry)]
        if entry["picture"]:
            lines += [f"![{entry['alt']}]({entry['picture']})", "", entry["caption"], ""]
        lines.append(f"{entry['setting']}. {entry['seconds']:,.0f} s of one process.")
        lines += [*(f"- {note}" for note in entry["notes"]), ""]
    return "\n".join(lines)


def _figures(entry: dict[str, Any]) -> str:
    rows = []
    for row in entry["rows"]:
        cells = [row["name"]]
        for text in row["text"]:
            spread = f"± {text['std']}" if text["std"] else ""
            paper = f"(paper {text['paper']})" if text["paper"] else ""
            cells.append(" ".join(filter(None, (text["ours"], spread, paper))))
        rows.append(cells)
    return markdown_table([entry["row"], *entry["columns"]], rows)


def summary(found: dict[str, Any]) -> str:
    verdicts = [claim["holds"] for claim in found["claims"]]
    hold, do_not, not_run = (verdicts.count(verdict) for verdict in VERDICTS)
    where = found["environment"]
    steps = f"; a rehearsal of {found['steps']} steps" if found["steps"] else ""
    return (
        f"Scale {found['scale']}{steps}; seeds: {found['seeds']}. Of {len(verdicts)} claims "
        f"hold: {hold}; do not hold: {do_not}; not run: {not_run}. "
        f"{where['device']}, {where['cores']} cores, torch {where['torch']}."
    )
