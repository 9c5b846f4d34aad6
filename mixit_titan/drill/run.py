"""A run of the drill: its state as seen from its folder, and ways to wait for it."""

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

_LOOKS = 0.01  # seconds between two checks
_SECONDS = 1800.0  # without progress for this long, a run is stuck


class DrillFailed(RunFailed):
    """A run did not do what it should have done. The drill continues with the next fault."""


class TooQuick(DrillFailed):
    """A run finished before it could be disturbed."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What all runs of a drill share."""

    config: Path
    """The config of the toy."""
    overrides: list[str]
    """The user's overrides, for all runs."""
    steps: int
    ranks: int
    fewer: int
    """How many ranks remain without one rank, or without one of several nodes."""
    why_not_fewer: str | None
    """Why a run cannot resume on fewer ranks; None if it can."""
    watched: bool
    """Whether a run without progress is ended."""
    long_save: float
    """Duration in seconds of a save that takes longer than a step may."""


class Run(ABC):
    """One run in its own folder. Subclasses decide where it runs."""

    STEPS: int
    """Steps that leave enough time to disturb the run."""

    def __init__(self, setup: Setup, home: Path) -> None:
        self.setup, self.home = setup, home
        self.folder = home / "run"
        self._written = 0

    # Where it runs.

    @abstractmethod
    def start(self, overrides: Sequence[str] = (), *, fewer: bool = False) -> None:
        """Start the run, or resume it after it has ended."""

    @abstractmethod
    def is_over(self) -> bool:
        """Whether it has ended, for good or until it is started again."""

    @abstractmethod
    def wait_for_end(self) -> None:
        """Wait until its ranks are gone."""

    @abstractmethod
    def ask_to_stop(self) -> None:
        """Ask it to stop, as a scheduler does that wants the machine back."""

    @abstractmethod
    def signal_rank(self, rank: int, number: signal.Signals) -> None:
        """Send a signal to one rank."""

    @abstractmethod
    def kill_launcher(self) -> None:
        """Kill what started the ranks by SIGKILL."""

    @abstractmethod
    def hold_save(self, seconds: float) -> None:
        """Make the next save take at least this long."""

    @abstractmethod
    def said(self) -> str:
        """The last thing that it printed."""

    @abstractmethod
    def close(self) -> None:
        """End it, wherever it is."""

    # Its state.

    @property
    def state(self) -> RunState:
        """The state that the run has written last."""
        return read_state(self.folder) or RunState("starting", 0, "")

    @property
    def step(self) -> int:
        """The last step that is complete, even if the next start has already written its state."""
        lines = read_metrics(self.folder / "metrics.jsonl")
        return max(self.state.step, lines[-1]["step"] if lines else 0)

    @property
    def checkpoints(self) -> Path:
        """The folder of its checkpoints."""
        return self.folder / "checkpoint"

    @property
    def started_at(self) -> list[int]:
        """For each start, the step before its first one."""
        file = self.folder / "logs" / "rank_0.log"
        log = file.read_text(errors="replace") if file.exists() else ""
        return [int(n) - 1 for n in re.findall(r"Training starts at step (\d+)", log)]

    def rank(self, number: int) -> dict[str, Any]:
        """The heartbeat of a rank, with its host and process."""
        self.wait_until(lambda: number in read_heartbeats(self.folder, number + 1), "has no ranks")
        return read_heartbeats(self.folder, number + 1)[number]

    # Waiting.

    def wait_until(self, holds: Callable[[], object], or_else: str) -> None:
        """Wait until `holds()`; raise DrillFailed, worded by `or_else`, if the run ends or takes
        too long."""
        deadline = time.monotonic() + self.patience
        while not holds():
            if self.is_over() and not holds():
                raise DrillFailed(f"the run {or_else}: {self.said()}")
            if time.monotonic() > deadline:
                raise DrillFailed(f"the run {or_else} for {self.patience:.0f} s")
            time.sleep(_LOOKS)

    @property
    def patience(self) -> float:
        """Seconds to wait for progress before the run counts as stuck."""
        return _SECONDS

    def wait_for_step(self, step: int, *, saved: int = 0) -> None:
        """Wait until the run trains, has reached the step, and has `saved` that many
        checkpoints."""

        def there() -> bool:
            state = self.state
            if state.word == "finished" or state.step == self.setup.steps:
                raise TooQuick(f"it finished before step {step} was observed")
            return (
                state.word == "running"
                and state.step >= step
                and len(steps(self.checkpoints)) >= saved
            )

        self.wait_until(there, f"did not reach step {step}")

    def mark(self) -> None:
        """Mark the current state: `wait_for_training` waits for a newer one."""
        self._written = self._last_written()

    def wait_for_training(self) -> None:
        """Wait until a step is complete that began after `mark`."""
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
        """Wait until the run has finished and its ranks are gone."""
        self.wait_until(lambda: self.state.word == "finished", "did not finish")
        self.wait_for_end()

    def _last_written(self) -> int:
        file = self.folder / "state"
        return file.stat().st_mtime_ns if file.exists() else 0
