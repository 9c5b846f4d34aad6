"""The state of a run: one line in its folder, which the job script and `status` read.

    running 120
    stopped 120 saved at step 120
    finished 8000
    failed 31 the loss is not finite ...
    hung 31 the run makes no progress: rank 1 is in step 31 for 40 s ...

A job script writes `starting 0`. A run that was killed leaves the line that it wrote last.
"""

import os
from pathlib import Path
from typing import Literal, NamedTuple

from mixit_titan.reading import read_bytes, regular

_BYTES = 512  # a constant size: overwriting it works on a full disk, too

Word = Literal["starting", "running", "stopped", "finished", "failed", "hung"]


class RunState(NamedTuple):
    """The last state that a run has written."""

    word: Word
    step: int
    said: str


class StateFile:
    """The state file, overwritten in place at every step at the cost of one system call. One rank
    owns it."""

    def __init__(self, folder: str) -> None:
        path = Path(folder) / "state"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = regular(str(path), os.O_WRONLY | os.O_CREAT)

    def write(self, word: Word, step: int, said: str = "") -> None:
        """Overwrite the state."""
        line = f"{word} {step} {said}".encode()[: _BYTES - 1]
        os.pwrite(self._file, line.ljust(_BYTES - 1) + b"\n", 0)


def read_state(folder: Path) -> RunState | None:
    """The state of the run in `folder`; None if it never started or left no readable line."""
    try:
        content = read_bytes(folder / "state", limit=8 * _BYTES).decode(errors="replace")
        word, step, *said = content.split(maxsplit=2)
        return RunState(word, int(step), "".join(said).strip())
    except (FileNotFoundError, ValueError):
        return None
