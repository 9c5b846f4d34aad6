"""Ctrl-C and SIGTERM stop a run of a task after the current step, so that it can save."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SAID = b"\nInterrupted: stopping after this step and saving; Ctrl-C again to quit now\n"
_SAID_AGAIN = b"\nInterrupted again: quit without saving\n"


class Stopped(SystemExit):
    """Raised once the run is saved as of `step`; its process ends as if the signal had ended it."""

    def __init__(self, step: int, number: int) -> None:
        super().__init__(128 + number)
        self.step = step


@contextmanager
def noted_signals() -> Iterator[list[int]]:
    """A context that collects the signals that arrive; a second Ctrl-C interrupts at once."""
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if number in noted:
                os.write(2, _SAID_AGAIN)
                raise KeyboardInterrupt
            os.write(2, _SAID)
        noted.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
