"""A progress bar of ended jobs, on a terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_SECONDS_BETWEEN = 1.0  # the note beside the bar is read from files


@contextmanager
def bar(
    console: Console, total: int, state: Callable[[], tuple[int, str]]
) -> Iterator[Callable[[], None]]:
    """Yields a function that updates the bar and may be called as often as you like. `state`
    returns the number of ended jobs and a note to show beside the bar."""
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
