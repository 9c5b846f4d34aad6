"""Tables for the screen and in Markdown, with text aligned to the left and numbers to the right."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table


def literal(text: str) -> str:
    """Text from elsewhere, escaped so that neither the terminal nor rich interprets it."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return escape(shown)


def screen_table(
    title: str | None,
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    left: int = 1,
    no_wrap: bool = False,
    **style: Any,
) -> Table:
    """A rich table. `left` is the number of leading columns that are text, not numbers."""
    table = Table(title=title, **style)
    for n, name in enumerate(header):
        table.add_column(name, justify="left" if n < left else "right", no_wrap=no_wrap)
    for row in rows:
        table.add_row(*map(str, row))
    return table


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[Any]], *, left: int | None = None
) -> str:
    """The lines of a Markdown table. `left` is the number of leading columns that are text
    (default: all of them)."""
    rules = ["---" if left is None or n < left else "---:" for n in range(len(header))]
    lines = [_line(header), "|" + "|".join(rules) + "|", *map(_line, rows)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
