"""report.md: the content of report.json as text."""

from typing import Any

from mixit_titan.reproduction.verdicts import FAILS, HOLDS, VERDICTS, WEAKLY
from mixit_titan.tables import markdown_table


def markdown_report(found: dict[str, Any]) -> str:
    """The page; `found` is the content of report.json."""
    lines = ["# Reproduction of the paper's tables and figures", "", summary(found), ""]
    claims = [
        (
            f"`{c['id']}` {c['says']}",
            "; ".join(c["needs"]),
            f"**{c['verdict']}**",
            "" if c["share"] is None else f"{c['share']:.1%}",
            c["paper"],
            c["ours"],
        )
        for c in found["claims"]
    ]
    header = ("claim", "required levels", "verdict", "right in resamples", "paper", "ours")
    if claims:
        lines.append(markdown_table(header, claims))
    lines += _image(found["summary"])
    for entry in found["exhibits"]:
        lines += _section(entry)
    for title, said in (
        ("Differences from the paper's setup", found["differences"]),
        ("Inconsistencies within the paper", found["inconsistencies"]),
    ):
        lines += [f"## {title}", "", *(f"- **{key}**: {text}" for key, text in said.items()), ""]
    return "\n".join(lines)


_PLURAL = {HOLDS: "hold", WEAKLY: "hold weakly", FAILS: "do not hold"}


def summary(found: dict[str, Any]) -> str:
    """Scale, verdicts and environment in two sentences."""
    verdicts = [claim["verdict"] for claim in found["claims"]]
    counts = [_counted(verdicts.count(verdict), verdict) for verdict in VERDICTS]
    judged = f"{len(verdicts)} claims, {', '.join(counts)}" if verdicts else "no claims"
    where = found["environment"]
    steps = f", a rehearsal of {found['steps']} steps" if found["steps"] else ""
    return (
        f"At {found['scale']} scale{steps}, with seeds from {found['first_seed']:,} on: "
        f"{judged}. Run on {where['device']} with {where['cores']} cores, "
        f"torch {where['torch']}, Python {where['python']}, mixit_titan {where['mixit_titan']} "
        f"at commit {where['commit'] or 'unknown'}; {found['seconds']:,.0f} s of process time."
    )


def _counted(number: int, verdict: str) -> str:
    return f"{number} {verdict if number == 1 else _PLURAL.get(verdict, verdict)}"


def _section(entry: dict[str, Any]) -> list[str]:
    lines = [f"## {entry['title']}", "", _values(entry), *_image(entry)]
    if entry["budgets"]:
        lines += ["Budget of one training run:", "", _budgets(entry)]
    lines.append(f"Settings: {entry['setting']}. {entry['seconds']:,.0f} s of process time.")
    return [*lines, *(f"- {note}" for note in entry["notes"]), "", f"    {entry['command']}", ""]


def _image(said: dict[str, Any]) -> list[str]:
    if not said["figure"]:
        return []
    return [f"![{said['alt']}]({said['figure']})", "", said["caption"], ""]


def _values(entry: dict[str, Any]) -> str:
    rows = []
    for row in entry["rows"]:
        cells = [row["name"]]
        for text in (cell["text"] for cell in row["cells"]):
            interval = f"({text['interval']})" if text["interval"] else ""
            paper = f"(paper {text['paper']})" if text["paper"] else ""
            cells.append(" ".join(filter(None, (text["ours"], interval, paper))))
        rows.append(cells)
    return markdown_table([entry["row"], *entry["columns"]], rows)


def _budgets(entry: dict[str, Any]) -> str:
    columns = budget_columns(entry)
    rows = [
        [row, *(budget_text(said[c]) if c in said else "" for c in columns)]
        for row, said in entry["budgets"].items()
    ]
    return markdown_table([entry["row"], *columns], rows)


def budget_columns(entry: dict[str, Any]) -> list[str]:
    """The columns in which any row was trained."""
    return [c for c in entry["columns"] if any(c in said for said in entry["budgets"].values())]


def budget_text(said: dict[str, Any]) -> str:
    """`500 steps, 16,000 examples, 1.2e+11 FLOPs`, and how many runs stopped early."""
    stopped = said["stopped_early"]
    early = ""
    if stopped:
        first, last = min(said["steps_taken"]), max(said["steps_taken"])
        at = f"{first:,}" if first == last else f"{first:,} to {last:,}"
        early = f"; {stopped} of {len(said['steps_taken'])} solved it and stopped at step {at}"
    return (
        f"{said['steps']:,} steps, {said['examples']:,} examples, {said['flops']:.2g} FLOPs{early}"
    )
