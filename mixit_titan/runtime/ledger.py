"""What a run spends its time on.

The first rank keeps `times.jsonl` in the run's folder, one line per start of the run, overwritten
in place about once per second: a kill loses one second of it.

    {"began": 1760000000.0, "until": 1760003600.0, "first": 0, "step": 512, "ended": false,
     "start": 21.5, "compile": 40.2, "train": 3420.9, "validate": 80.1, "save": 37.3}

`first` is the step that it resumed from, `step` the last one that it completed, and `ended` whether
it ended in an orderly way; the time after that is not counted. After a kill, the time until the
next start counts as lost, and so does the training that has to be repeated.
"""

import contextlib
import math
import os
import time
from pathlib import Path
from typing import Any

from mixit_titan.files import json_text
from mixit_titan.json_form import Form, WrongForm, parse_json
from mixit_titan.reading import WrongFile, read_bytes, regular
from mixit_titan.runtime.heartbeat import Section

FILE = "times.jsonl"
_BYTES = 512  # of every line, because it is overwritten in place
_SECONDS_BETWEEN = 1.0
_PART: dict[Section, str] = {
    "start": "start",
    "first step": "train",
    "step": "train",
    "first validation": "validate",
    "validation": "validate",
    "evaluation": "validate",
    "save": "save",
    "end": "save",
}
PARTS = ("start", "compile", "train", "validate", "save")
_LINE: Form = {
    **dict.fromkeys(("began", "until", *PARTS), float),
    **{"first": (int, None), "step": int, "ended": bool},
}

_ledger: "Ledger | None" = None


def start_ledger() -> None:
    """Start to record what `note` is told. Called by the first rank."""
    global _ledger
    _ledger = Ledger()


def open_ledger(folder: Path) -> None:
    """Write the records, past and future, to the run's folder. Only one process may do so."""
    if _ledger is not None:
        _ledger.open(folder)


def note(section: Section, step: int) -> None:
    """Record which section begins now."""
    if _ledger is not None:
        _ledger.begin(section, step)


def end_ledger() -> None:
    """Record that the run ends in an orderly way: nothing has to be repeated."""
    global _ledger
    if _ledger is not None:
        _ledger.end()
    _ledger = None


def read_times(folder: Path) -> list[dict[str, Any]]:
    """The complete lines of a run's times.jsonl; none if the file is missing or something else."""
    found: list[dict[str, Any]] = []
    with contextlib.suppress(FileNotFoundError, WrongFile):
        for text in read_bytes(folder / FILE).splitlines():
            with contextlib.suppress(WrongForm):
                found.append(parse_json(text, _LINE))
    return found


class Ledger:
    """Adds up the seconds of this process by section, and writes them once it has a file."""

    def __init__(self) -> None:
        self.began, self.until = time.time(), time.time()
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.first: int | None = None
        self.step, self.ended = 0, False
        self._part, self._since = "start", time.monotonic()
        self._file: int | None = None
        self._place, self._written = 0, -math.inf

    def open(self, folder: Path) -> None:
        """Open the file and append a line to it. Only one process may do so."""
        with contextlib.suppress(OSError, WrongFile):
            self._file = regular(str(folder / FILE), os.O_WRONLY | os.O_CREAT)
            self._place = -(-os.fstat(self._file).st_size // _BYTES) * _BYTES
        self._write()

    def begin(self, section: Section, step: int) -> None:
        """Count the time of the section so far, and begin another."""
        self._count()
        self._part = _PART[section]
        in_a_step = self._part == "train"
        self.step = step - in_a_step  # when a step begins, the one before it is complete
        if in_a_step and self.first is None:
            self.first, self._part = self.step, "compile"
        if self._since > self._written + _SECONDS_BETWEEN:
            self._write()

    def end(self) -> None:
        """Write the last line and close the file."""
        self._count()
        self.ended = True
        self._write()
        if self._file is not None:
            os.close(self._file)

    def _count(self) -> None:
        now = time.monotonic()
        self.seconds[self._part] += now - self._since
        self._since, self.until = now, time.time()

    def _write(self) -> None:
        """Overwrite the line. Errors of the disk are ignored: others will report them."""
        if self._file is None:
            return
        self._written = self._since
        times = {"began": self.began, "until": self.until, **self.seconds}
        line = {key: round(seconds, 3) for key, seconds in times.items()}
        line |= {"first": self.first, "step": self.step, "ended": self.ended}
        with contextlib.suppress(OSError):
            text = json_text(line).encode().ljust(_BYTES - 1)
            os.pwrite(self._file, text + b"\n", self._place)
