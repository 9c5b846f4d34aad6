"""Goodput: the share of a run's time that was training, and where the rest went."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mixit_titan.runtime.ledger import PARTS, read_times


@dataclass(frozen=True)
class Goodput:
    """Seconds by what they were spent on, which add up to the time of the run."""

    start: float
    """Until the first step: building, loading, connecting the ranks."""
    compile: float
    """The first step after each start."""
    train: float
    """All other steps, except those that had to be repeated."""
    validate: float
    """Validations and evaluations."""
    save: float
    """Saves, and what follows the last step."""
    lost: float
    """Between a kill and the next start, and steps that had to be repeated."""
    starts: int

    @property
    def seconds(self) -> float:
        """The total time of the run."""
        return self.start + self.compile + self.train + self.validate + self.save + self.lost

    @property
    def restarts(self) -> int:
        """Starts after the first, including those after an orderly stop, which loses nothing."""
        return self.starts - 1

    @property
    def share(self) -> float:
        """The share of the time that was training."""
        return self.train / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, float]:
        """The share, the total and all parts."""
        sums = {"share": self.share, "seconds": self.seconds} | asdict(self)
        return {key: round(value, 3) for key, value in sums.items()}

    def __str__(self) -> str:
        parts = [f"{name} {_duration(getattr(self, name))}" for name in PARTS]
        parts.append(f"lost {_duration(self.lost)}")
        restarts = f"{self.restarts} restart{'s' * (self.restarts != 1)}"
        shares = f"{', '.join(parts)}; {restarts}"
        return f"{self.share:.1%} of {_duration(self.seconds)} was training ({shares})"


def goodput(folder: Path) -> Goodput | None:
    """The goodput of the run in `folder` up to its last sign of life; None without records."""
    lines = read_times(folder)
    if not lines:
        return None
    sums = {part: sum(line[part] for line in lines) for part in PARTS}
    again = sum(_done_again(line, lines[n + 1 :]) for n, line in enumerate(lines))
    idle = sum(_idle(line, lines[n + 1 : n + 2]) for n, line in enumerate(lines))
    sums["train"] -= again
    return Goodput(**sums, lost=again + idle, starts=len(lines))


def _done_again(line: dict[str, Any], later: list[dict[str, Any]]) -> float:
    """Seconds of training, except for the first step, that a later start had to repeat."""
    resumed = [each["first"] for each in later if each["first"] is not None]
    if line["first"] is None or not resumed:
        return 0.0
    trained = line["step"] - line["first"] - 1
    kept = min(resumed) - line["first"] - 1
    return line["train"] * (1 - min(max(kept / trained, 0.0), 1.0)) if trained > 0 else 0.0


def _idle(line: dict[str, Any], following: list[dict[str, Any]]) -> float:
    """Seconds in which the run did nothing: while the machine was suspended, and until the next
    start."""
    asleep = line["until"] - line["began"] - sum(line[part] for part in PARTS)
    gone = following[0]["began"] - line["until"] if following and not line["ended"] else 0.0
    return max(asleep, 0.0) + max(gone, 0.0)


def _duration(seconds: float) -> str:
    """`0.4 s`, `35 s`, `12 min`, `3.5 h`"""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
