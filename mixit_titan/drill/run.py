"""A run of the drill: what it has come to, seen from its folder, and how it is waited for."""

import re
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mixit_titan.errors import RunFailed
from mixit_titan.runtime.checkpoint_files import steps
from mixit_titan.runtime.heartbeat import read_heartbeats
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.runtime.run_state import RunState, read_state

_LOOKS = 0.01  # seconds between two
_SECONDS = 1800.0  # a run that has come no further by then is stuck


class DrillFailed(RunFailed):
    """A run did not do what it should have done. The drill goes on with the next fault."""


class TooQuick(DrillFailed):
    """A run was finished before it could be disturbed."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What all runs of a drill have in common."""

    config: Path
    """The toy."""
    overrides: list[str]
    """Of the user, for all runs."""
    steps: int
    ranks: int
    fewer: int
    """How many ranks are left when one is gone, or one node of several."""
    why_not_fewer: str | None
    """None: a run can resume on them."""
    watched: bool
    """Whether a run that stands still is ended."""
    long_save: float
    """Seconds of a save that lasts longer than a step may."""


class Run(ABC):
    """One run in a folder of its own. Where it runs is LocalRun's or SlurmRun's to say."""

    STEPS: int
    """Time enough to disturb it."""

    def __init__(self, setup: Setup, home: Path) -> None:
        self.setup, self.home = setup, home
        self.folder = home / "run"
        self._written = 0

    # Where it runs.

    @abstractmethod
    def start(self, overrides: Sequence[str] = (), *, fewer: bool = False) -> None:
        """Begin, or resume after the end."""

    @abstractmethod
    def is_over(self) -> bool:
        """Whether it has ended for good, or until it is started again."""

    @abstractmethod
    def wait_for_end(self) -> None:
        """Until its ranks are gone."""

    @abstractmethod
    def ask_to_stop(self) -> None:
        """As whoever wants the machine back does."""

    @abstractmethod
    def signal_rank(self, rank: int, number: signal.Signals) -> None:
        """Send a signal to one rank."""

    @abstractmethod
    def kill_launcher(self) -> None:
        """Kill -9 what started the ranks."""

    @abstractmethod
    def hold_save(self, seconds: float) -> None:
        """Make the next save last at least this long."""

    @abstractmethod
    def said(self) -> str:
        """What it printed last."""

    @abstractmethod
    def close(self) -> None:
        """End it, however far it is."""

    # What it has come to.

    @property
    def state(self) -> RunState:
        return read_state(self.folder) or RunState("starting", 0, "")

    @property
    def step(self) -> int:
        """The last that is done, also where the next start has begun to write its state."""
        lines = read_metrics(self.folder / "metrics.jsonl")
        return max(self.state.step, lines[-1]["step"] if lines else 0)

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def started_at(self) -> list[int]:
        """The step before the first of each start."""
        file = self.folder / "logs" / "rank_0.log"
        log = file.read_text(errors="replace") if file.exists() else ""
        return [int(n) - 1 for n in re.findall(r"Training starts at step (\d+)", log)]

    def rank(self, number: int) -> dict[str, Any]:
        """Where a rank runs: host and process."""
        self.wait_until(lambda: number in read_heartbeats(self.folder, number + 1), "has no ranks")
        return read_heartbeats(self.folder, number + 1)[number]

    # Waiting.

    def wait_until(self, holds: Callable[[], object], or_else: str) -> None:
        deadline = time.monotonic() + self.patience
        while not holds():
            if self.is_over() and not holds():
                raise DrillFailed(f"the run {or_else}: {self.said()}")
            if time.monotonic() > deadline:
                raise DrillFailed(f"the run {or_else} for {self.patience:.0f} s")
            time.sleep(_LOOKS)

    @property
    def patience(self) -> float:
        return _SECONDS

    def wait_for_step(self, step: int, *, saved: int = 0) -> None:
        """Until it trains, is at the step or beyond it, and has saved as many checkpoints."""

        def there() -> bool:
            state = self.state
            if state.word == "finished" or state.step == self.setup.steps:
                raise TooQuick(f"it was finished before step {step} was seen")
            return (
                state.word == "running"
                and state.step >= step
                and len(steps(self.checkpoints)) >= saved
            )

        self.wait_until(there, f"did not come to step {step}")

    def mark(self) -> None:
        """From here on `wait_for_training` waits for something new."""
        self._written = self._last_written()

    def wait_for_training(self) -> None:
        """Until a step is done that was begun after `mark`."""
        first: int | None = None

        def trains() -> bool:
            nonlocal first
            state = self.state
            if self._last_written() == self._written or state.word == "starting":
                return False
            if first is None and state.word == "running":
                first = state.step
            return state.word == "finished" or (first is not None and state.step > first)

        self.wait_until(trains, "did not train again")

    def wait_for_finish(self) -> None:
        self.wait_until(lambda: self.state.word == "finished", "did not finish")
        self.wait_for_end()

    def _last_written(self) -> int:
        file = self.folder / "state"
        return file.stat().st_mtime_ns if file.exists() else 0
