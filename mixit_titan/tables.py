"""Tables, on the screen and as Markdown: the first column to the left, figures to the right."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table


def literal(text: str) -> str:
    """What somebody else has written, as it is: neither the terminal nor rich obeys it."""
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
    """A rich table. `left`: how many of its first columns are words, not figures."""
    table = Table(title=title, **style)
    for n, name in enumerate(header):
        table.add_column(name, justify="left" if n < left else "right", no_wrap=no_wrap)
    for row in rows:
        table.add_row(*map(str, row))
    return table


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[Any]], *, left: int | None = None
) -> str:
    """The lines of a Markdown table. `left`: how many of its first columns are words (default:
    all)."""
    rules = ["---" if left is None or n < left else "---:" for n in range(len(header))]
    lines = [_line(header), "|" + "|".join(rules) + "|", *map(_line, rows)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
