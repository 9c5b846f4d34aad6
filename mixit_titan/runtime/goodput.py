"""The share of a run's time that was training, and where the rest went."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mixit_titan.runtime.ledger import PARTS, read_times


@dataclass(frozen=True)
class Goodput:
    """Seconds, all of which add up to the run's time."""

    start: float
    """Until the first step: building, loading, meeting the other ranks."""
    compile: float
    """The first step after each start."""
    train: float
    """All other steps, but those that were done again."""
    validate: float
    """And evaluations."""
    save: float
    """And what follows the last step."""
    lost: float
    """Between a kill and the next start, and steps that had to be done again."""
    starts: int

    @property
    def seconds(self) -> float:
        return self.start + self.compile + self.train + self.validate + self.save + self.lost

    @property
    def restarts(self) -> int:
        """After an orderly stop too, which loses nothing."""
        return self.starts - 1

    @property
    def share(self) -> float:
        """Of the time that was training."""
        return self.train / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, float]:
        sums = {"share": self.share, "seconds": self.seconds} | asdict(self)
        return {key: round(value, 3) for key, value in sums.items()}

    def __str__(self) -> str:
        parts = [f"{name} {_duration(getattr(self, name))}" for name in PARTS]
        parts.append(f"lost {_duration(self.lost)}")
        restarts = f"{self.restarts} restart{'s' * (self.restarts != 1)}"
        shares = f"{', '.join(parts)}; {restarts}"
        return f"{self.share:.1%} of {_duration(self.seconds)} was training ({shares})"


def goodput(folder: Path) -> Goodput | None:
    """Of the run in `folder`, up to its last sign; None where it has left no times."""
    lines = read_times(folder)
    if not lines:
        return None
    sums = {part: sum(line[part] for line in lines) for part in PARTS}
    again = sum(_done_again(line, lines[n + 1 :]) for n, line in enumerate(lines))
    idle = sum(_idle(line, lines[n + 1 : n + 2]) for n, line in enumerate(lines))
    sums["train"] -= again
    return Goodput(**sums, lost=again + idle, starts=len(lines))


def _done_again(line: dict[str, Any], later: list[dict[str, Any]]) -> float:
    """Seconds of its training, but for the first step, that a later start did once more."""
    resumed = [each["first"] for each in later if each["first"] is not None]
    if line["first"] is None or not resumed:
        return 0.0
    trained = line["step"] - line["first"] - 1
    kept = min(resumed) - line["first"] - 1
    return line["train"] * (1 - min(max(kept / trained, 0.0), 1.0)) if trained > 0 else 0.0


def _idle(line: dict[str, Any], following: list[dict[str, Any]]) -> float:
    """Seconds in which it did nothing: while the machine slept, and until the next start."""
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
