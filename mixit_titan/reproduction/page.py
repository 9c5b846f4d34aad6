"""report.html: one file with embedded figures, for any screen width, in light and dark mode."""

import base64
import struct
from html import escape
from pathlib import Path
from typing import Any

from mixit_titan.plotting import COLORS
from mixit_titan.reproduction.markdown import budget_columns, budget_text
from mixit_titan.reproduction.verdicts import FAILS, HOLDS, NOT_RUN, UNDECIDED, VERDICTS, WEAKLY

_MARKS = {HOLDS: "✓", WEAKLY: "(✓)", UNDECIDED: "?", FAILS: "✗", NOT_RUN: "&ndash;"}
_CLASSES = {HOLDS: "yes", WEAKLY: "weak", UNDECIDED: "weak", FAILS: "no", NOT_RUN: "none"}

_STYLE = """
:root { color-scheme: light dark; --text: #1c2024; --soft: #5d6670; --back: #f6f7f9; --card: #fff;
  --line: #dde1e6; --yes: #0a6b3d; --yes-back: #dcf3e6; --no: #a02020; --no-back: #fbe3e1;
  --weak: #7a5200; --weak-back: #fbeecb; --none: #5d6670; --none-back: #e8ebee; --link: #0b5cad; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ec; --soft: #a0a9b3; --back: #14171a;
  --card: #1d2125; --line: #343a41; --yes: #7fdcaa; --yes-back: #123824; --no: #ff9d95;
  --no-back: #461b18; --weak: #f0c66a; --weak-back: #40310d; --none: #a0a9b3;
  --none-back: #2b3036; --link: #7db8f5; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2rem 1rem 4rem; }
h1 { font-size: clamp(1.5rem, 4vw, 2.1rem); line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 0 0 1rem; }
p, li, td, dd, figcaption { overflow-wrap: anywhere; }
a { color: var(--link); }
.soft { color: var(--soft); font-size: .9rem; }
.counts { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.25rem 0; padding: 0;
  list-style: none; }
.counts li { flex: 1 1 6.5rem; padding: .7rem 1rem; border-radius: .6rem; }
.counts b { display: block; font-size: 1.9rem; line-height: 1.1; }
.yes { color: var(--yes); background: var(--yes-back); }
.no { color: var(--no); background: var(--no-back); }
.weak { color: var(--weak); background: var(--weak-back); }
.none { color: var(--none); background: var(--none-back); }
nav ul { display: flex; flex-wrap: wrap; gap: .4rem; padding: 0; margin: 0; list-style: none; }
nav a { display: block; padding: .25rem .7rem; border: 1px solid var(--line);
  border-radius: 1rem; background: var(--card); text-decoration: none; font-size: .9rem; }
section { background: var(--card); border: 1px solid var(--line); border-radius: .8rem;
  padding: 1.25rem; margin-top: 1.5rem; }
.claims { list-style: none; padding: 0; margin: 0 0 1.25rem; }
.claims li { padding: .6rem 0; border-top: 1px solid var(--line); }
.claims li:first-child { border-top: 0; padding-top: 0; }
.verdict { display: inline-block; padding: 0 .55rem; border-radius: .8rem; font-size: .85rem;
  font-weight: 600; white-space: nowrap; margin-right: .4rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .75rem;
  margin: .3rem 0 0; font-size: .88rem; }
dt { color: var(--soft); }
dd { margin: 0; }
.box { overflow-x: auto; margin: 0 0 1.25rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .7rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; vertical-align: top; }
th:first-child { text-align: left; }
thead th { color: var(--soft); font-weight: 600; font-size: .85rem; }
td b { display: block; font-weight: 600; }
td i { display: block; color: var(--soft); font-style: normal; }
.dot { display: inline-block; width: .7em; height: .7em; border-radius: 50%; margin-right: .5em; }
td small { display: block; color: var(--soft); }
figure { margin: 0 0 1rem; }
img { display: block; max-width: 100%; height: auto; margin: 0 auto; background: #fff;
  border-radius: .5rem; }
figcaption { color: var(--soft); font-size: .9rem; margin-top: .5rem; }
details { margin: 0 0 1rem; font-size: .9rem; }
summary { cursor: pointer; color: var(--soft); margin-bottom: .5rem; }
td.words { white-space: normal; min-width: 8rem; }
pre { overflow-x: auto; padding: .5rem .7rem; margin: .75rem 0 0; border-radius: .4rem;
  background: var(--back); font-size: .85rem; }
.notes { margin: .75rem 0 0; padding-left: 1.2rem; font-size: .9rem; }
@media (max-width: 34rem) { main { padding: 1.25rem .6rem 3rem; } section { padding: .9rem; }
  th, td { padding: .4rem .45rem; font-size: .88rem; } }
"""


def html_page(found: dict[str, Any], summary: str, out: Path) -> str:
    """The page. `found` is the content of report.json; the figures are in `out`."""
    title = "Is Random Attention Sufficient for Sequence Modeling? A reproduction"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<header>
<h1>{escape(title)}</h1>
<p class="soft">arXiv 2506.01115, reproduced with mixit_titan. {escape(summary)}</p>
{_counts(found["claims"])}
{_figure(found["summary"], out)}
{_links(found["exhibits"])}
</header>
{"".join(_section(entry, out) for entry in found["exhibits"])}
{_facts("Differences from the paper's setup", found["differences"])}
{_facts("Inconsistencies within the paper", found["inconsistencies"])}
</main>
</body>
</html>
"""


def _counts(claims: list[dict[str, Any]]) -> str:
    items = []
    for verdict in VERDICTS:
        number = sum(claim["verdict"] == verdict for claim in claims)
        items.append(f'<li class="{_CLASSES[verdict]}"><b>{number}</b>{verdict}</li>')
    return f'<ul class="counts" aria-label="Claims by verdict">{"".join(items)}</ul>'


def _links(entries: list[dict[str, Any]]) -> str:
    items = []
    for entry in entries:
        marks = "".join(_MARKS[claim["verdict"]] for claim in entry["claims"])
        name = entry["title"].partition(":")[0]
        items.append(f'<li><a href="#{entry["id"]}">{escape(name)} {marks}</a></li>')
    return f'<nav aria-label="Exhibits"><ul>{"".join(items)}</ul></nav>'


def _section(entry: dict[str, Any], out: Path) -> str:
    notes = "".join(f"<li>{escape(note)}</li>" for note in entry["notes"])
    return f"""<section id="{entry["id"]}">
<h2>{escape(entry["title"])}</h2>
<ul class="claims">{"".join(map(_claim, entry["claims"]))}</ul>
{_table(entry)}
{_figure(entry, out)}
{_budgets(entry)}
<p class="soft">Settings: {escape(entry["setting"])}. {entry["seconds"]:,.0f} s of process time.</p>
{f'<ul class="notes">{notes}</ul>' if notes else ""}
<pre>{escape(entry["command"])}</pre>
</section>
"""


def _facts(title: str, facts: dict[str, str]) -> str:
    items = "".join(f"<li><b>{escape(key)}</b>: {escape(text)}</li>" for key, text in facts.items())
    return f"<section><h2>{escape(title)}</h2><ul>{items}</ul></section>"


def _budgets(entry: dict[str, Any]) -> str:
    """The budgets of an exhibit, collapsed by default."""
    if not entry["budgets"]:
        return ""
    columns = budget_columns(entry)
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = []
    for row, said in entry["budgets"].items():
        texts = [budget_text(said[c]) if c in said else "" for c in columns]
        cells = "".join(f'<td class="words">{escape(text)}</td>' for text in texts)
        body.append(f'<tr><th scope="row">{_name(row)}</th>{cells}</tr>')
    different = ", ".join(entry["unequal_budgets"])
    marked = f"unequal: {different}" if different else "equal"
    return (
        f"<details><summary>Budget of one training run ({escape(marked)})</summary>"
        f'<div class="box"><table><thead><tr><th scope="col">{escape(entry["row"])}</th>{head}'
        f"</tr></thead><tbody>{''.join(body)}</tbody></table></div></details>"
    )


def _claim(claim: dict[str, Any]) -> str:
    verdict = claim["verdict"]
    said = {
        "requires": "; ".join(claim["needs"]),
        "paper": claim["paper"],
        "ours": claim["ours"],
        "not reached": "; ".join(claim["unmet"]),
        "right in": "" if claim["share"] is None else f"{claim['share']:.1%} of resamples",
    }
    lines = "".join(f"<dt>{key}</dt><dd>{escape(text)}</dd>" for key, text in said.items() if text)
    return (
        f'<li><span class="verdict {_CLASSES[verdict]}">{_MARKS[verdict]} {verdict}</span>'
        f"{escape(claim['says'])}<dl>{lines}</dl></li>"
    )


def _table(entry: dict[str, Any]) -> str:
    """Our results, with the paper's below each. A wide table scrolls inside its box."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in entry["columns"])
    body = []
    for row in entry["rows"]:
        cells = "".join(f"<td>{_cell(cell['text'])}</td>" for cell in row["cells"])
        body.append(f'<tr><th scope="row">{_name(row["name"])}</th>{cells}</tr>')
    over = all(name.isdigit() for name in entry["columns"])
    corner = f"{entry['row']} by {entry['column']}" if over else entry["row"]
    label = escape(f"{entry['title']}: results")
    return (
        f'<div class="box" role="region" tabindex="0" aria-label="{label}"><table><thead><tr>'
        f'<th scope="col">{escape(corner)}</th>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _name(row: str) -> str:
    """The name of a row, with the color of its variant in all figures."""
    dot = f'<span class="dot" style="background: {COLORS[row]}"></span>' if row in COLORS else ""
    return dot + escape(row)


def _cell(text: dict[str, str]) -> str:
    """A table cell, from the `text` of a cell in report.json."""
    measured = text["ours"] not in ("", NOT_RUN)
    ours = f"<b>{escape(text['ours'])}</b>" if measured else f"<i>{text['ours'] or '&ndash;'}</i>"
    below = [
        text["interval"],
        f"paper {text['paper']}" if text["paper"] else "",
    ]
    return ours + "".join(f"<small>{escape(line)}</small>" for line in below if line)


def _figure(entry: dict[str, Any], out: Path) -> str:
    if entry["figure"] is None:
        return '<p class="soft">No figure yet, as no result is complete.</p>'
    png = (out / entry["figure"]).read_bytes()
    width, height = (2 * size // 3 for size in struct.unpack(">II", png[16:24]))  # PNG's header
    data = base64.b64encode(png).decode()
    return (
        f'<figure><img src="data:image/png;base64,{data}" width="{width}" height="{height}" '
        f'alt="{escape(entry["alt"])}">'
        f"<figcaption>{escape(entry['caption'])}</figcaption></figure>"
    )
