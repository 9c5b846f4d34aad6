"""Where a run is: one line in its folder, which the job script and `status` read.

    running 120
    stopped 120 saved at step 120
    finished 8000
    failed 31 the loss is not finite ...
    hung 31 the run stands still: rank 1 is in step 31 for 40 s ...

A job script writes `starting 0`. A run that was killed leaves what it wrote last.
"""

import os
from pathlib import Path
from typing import Literal, NamedTuple

from mixit_titan.reading import read_bytes, regular

_BYTES = 512  # always: a full disk has room for what was there before

Word = Literal["starting", "running", "stopped", "finished", "failed", "hung"]


class RunState(NamedTuple):
    word: Word
    step: int
    said: str


class StateFile:
    """Written in place at every step, which costs one system call. For one rank to hold."""

    def __init__(self, folder: str) -> None:
        path = Path(folder) / "state"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = regular(str(path), os.O_WRONLY | os.O_CREAT)

    def write(self, word: Word, step: int, said: str = "") -> None:
        line = f"{word} {step} {said}".encode()[: _BYTES - 1]
        os.pwrite(self._file, line.ljust(_BYTES - 1) + b"\n", 0)


def read_state(folder: Path) -> RunState | None:
    """None where no run has begun, or none that left a readable line."""
    try:
        content = read_bytes(folder / "state", limit=8 * _BYTES).decode(errors="replace")
        word, step, *said = content.split(maxsplit=2)
        return RunState(word, int(step), "".join(said).strip())
    except (FileNotFoundError, ValueError):
        return None
