"""A bar of how many jobs have ended, on a terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_SECONDS_BETWEEN = 1.0  # what is said beside the bar is read from files


@contextmanager
def bar(
    console: Console, total: int, state: Callable[[], tuple[int, str]]
) -> Iterator[Callable[[], None]]:
    """Gives what brings the bar up to date, to be called as often as one likes. `state`: how many
    have ended, and what to say beside the bar."""
    progress = Progress(
        TextColumn("jobs"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        console=console,
        disable=not console.is_terminal,
    )
    task, last = progress.add_task("", total=total, note=""), 0.0

    def show() -> None:
        nonlocal last
        if not progress.disable and time.monotonic() >= last + _SECONDS_BETWEEN:
            ended, note = state()
            progress.update(task, completed=ended, note=note)
            last = time.monotonic()

    with progress:
        yield show
