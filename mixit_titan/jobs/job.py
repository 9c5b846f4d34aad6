"""A job: work for a separate process, in a folder of its own."""

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
    """`work(*arguments)`, a module-level function with picklable arguments, runs in a separate
    process. Jobs with the same folder are the same job."""

    folder: Path
    name: str
    kind: str
    """Jobs of one kind take about the same time."""
    work: Callable[..., object]
    arguments: tuple[Any, ...]
    read: Callable[[Path], Result | None]
    """Reads the result from the folder; returns None until it is finished, and if it is broken."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What a report says about the job."""
    after: tuple["Job", ...] = ()
    """Jobs that must be done first."""
    alone: bool = False
    """Run without other jobs beside it, and after them."""
    mend: Callable[[Path], object] = lambda folder: None
    """Called before a start: removes what a kill left behind and what cannot be resumed."""
    status: Callable[[Path], str] = lambda folder: ""
    """Its progress in a few words; after its end, its outcome."""

    @property
    def result(self) -> Result | None:
        """The result in the folder, or None."""
        return self.read(self.folder)

    @property
    def log(self) -> Path:
        """The file that the job's output goes to."""
        return self.folder / "log.txt"

    @property
    def seconds(self) -> float:
        """The total time of all of its starts."""
        said = self._said_seconds()
        if said is None:  # another command ran it
            said = (self.result or {}).get("seconds", 0.0)
        return said

    def add_seconds(self, seconds: float) -> None:
        """Add the time of one start."""
        before = self._said_seconds() or 0.0
        write_text(self._seconds_file, f"{before + seconds:.3f}\n")

    def _said_seconds(self) -> float | None:
        """The recorded time; None if there is none or it is invalid."""
        found = re.fullmatch(r"\d{1,12}(\.\d+)?\n?", text_if_good(self._seconds_file) or "")
        return None if found is None else float(found[0])

    @property
    def _seconds_file(self) -> Path:
        return self.folder / "seconds"
