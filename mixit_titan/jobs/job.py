"""A job: work for a process of its own, in a folder of its own."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mixit_titan.files import write_text
from mixit_titan.reading import text_if_good

Result = dict[str, Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class Job:
    """`work(*arguments)`, a function of a module and what can be pickled, is called in a process of
    its own. Jobs of the same folder are the same job."""

    folder: Path
    name: str
    kind: str
    """Jobs of one kind take about the same time."""
    work: Callable[..., object]
    arguments: tuple[Any, ...]
    read: Callable[[Path], Result | None]
    """The result in the folder; None until it is finished, and where it is broken."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What a report says of it."""
    after: tuple["Job", ...] = ()
    """What must be done before."""
    alone: bool = False
    """Not beside other jobs, and after them."""
    mend: Callable[[Path], object] = lambda folder: None
    """Called before it is started: puts what a kill left, and cannot be resumed, out of the way."""
    status: Callable[[Path], str] = lambda folder: ""
    """How far it is, in a few words; at its end, how it went."""

    @property
    def result(self) -> Result | None:
        return self.read(self.folder)

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    @property
    def seconds(self) -> float:
        """What it took, in all of its starts."""
        said = self._said_seconds()
        if said is None:  # another command ran it
            said = (self.result or {}).get("seconds", 0.0)
        return said

    def add_seconds(self, seconds: float) -> None:
        before = self._said_seconds() or 0.0
        write_text(self._seconds_file, f"{before + seconds:.3f}\n")

    def _said_seconds(self) -> float | None:
        """None also of what is no time."""
        found = re.fullmatch(r"\d{1,12}(\.\d+)?\n?", text_if_good(self._seconds_file) or "")
        return None if found is None else float(found[0])

    @property
    def _seconds_file(self) -> Path:
        return self.folder / "seconds"
