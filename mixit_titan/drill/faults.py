"""What can happen to a run, each as a function that does it and sees how the run ended. A run is
handed over while it trains, with two checkpoints behind it, and is to train again afterwards."""

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mixit_titan.drill.local_run import LocalRun
from mixit_titan.drill.run import DrillFailed, Run, Setup
from mixit_titan.drill.slurm_run import SlurmRun
from mixit_titan.drill.small_disk import fill
from mixit_titan.runtime.checkpoint_files import newest_complete


@dataclass(frozen=True, kw_only=True)
class Fault:
    title: str
    happen: Callable[[Run], None]
    """Returns when the run has ended or, if it `survives`, goes on. Raises DrillFailed where it
    ended otherwise than it should."""
    check: Callable[[Run], None] = lambda run: None
    """What else must hold when the run is finished."""
    survives: bool = False
    fewer: bool = False
    """It resumes on fewer ranks."""
    overrides: list[str] = field(default_factory=list)
    """Of the run, from its start."""
    on_small_disk: bool = False
    impossible: Callable[[Setup, type[Run]], str | None] = lambda setup, kind: None
    """Why it cannot be rehearsed."""


def kill_rank(run: Run) -> None:
    run.signal_rank(run.setup.ranks - 1, signal.SIGKILL)
    run.wait_for_end()


def kill_launcher(run: Run) -> None:
    run.kill_launcher()
    run.wait_for_end()


def sigterm(run: Run) -> None:
    run.ask_to_stop()
    run.wait_for_end()
    _expect(run, "stopped")


def sigstop(run: Run) -> None:
    run.signal_rank(run.setup.ranks - 1, signal.SIGSTOP)
    run.wait_for_end()
    _expect(run, "hung")


def full_disk(run: Run) -> None:
    ballast = run.folder / "ballast"
    fill(ballast)
    run.wait_for_end()
    ballast.unlink()
    _expect(run, "failed")
    if "is full" not in run.state.said:
        raise DrillFailed(f"the run did not say that the disk is full: {run.state.said}")


def damaged_checkpoint(run: Run) -> None:
    """While the first rank is halted, no newer checkpoint gets its name."""
    run.signal_rank(0, signal.SIGSTOP)
    newest = run.checkpoints / f"step-{newest_complete(run.checkpoints)}"
    _flip_bytes(max(newest.glob("*.distcp"), key=lambda file: file.stat().st_size))
    run.signal_rank(0, signal.SIGKILL)
    run.wait_for_end()


def was_set_aside(run: Run) -> None:
    if not any(run.checkpoints.glob(".broken-*")):
        raise DrillFailed("the damaged checkpoint was not noticed")


def slow_save(run: Run) -> None:
    """Longer than a step may take: that is no reason to end the run."""
    run.hold_save(run.setup.long_save)
    if len(run.started_at) > 1 or run.state.word != "running":
        raise DrillFailed(f"the run did not wait for a save: {run.state.said or run.said()}")


def requeue(run: Run) -> None:
    run.requeue()
    run.wait_for_end()


def fewer_ranks(run: Run) -> None:
    if isinstance(run, SlurmRun):
        run.cancel()
    else:
        run.ask_to_stop()
    run.wait_for_end()


def _expect(run: Run, word: str) -> None:
    if run.state.word != word:
        raise DrillFailed(f"the run should be {word} and is {run.state.word}: {run.said()}")


def _flip_bytes(file: Path) -> None:
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 16] = bytes(byte ^ 0xFF for byte in content[middle : middle + 16])
    file.write_bytes(content)


def _one_process(setup: Setup, kind: type[Run]) -> str | None:
    alone = setup.ranks == 1 and kind is LocalRun
    return "a single rank is its own launcher: see kill_rank" if alone else None


def _not_watched(setup: Setup, kind: type[Run]) -> str | None:
    if setup.ranks == 1:
        return "a run whose only rank is stopped is paused, not hung"
    return None if setup.watched else "watch.enable is false: nobody would notice"


def _local_only(setup: Setup, kind: type[Run]) -> str | None:
    return None if kind is LocalRun else "a disk to fill is mounted on one machine: leave --slurm"


def _slurm_only(setup: Setup, kind: type[Run]) -> str | None:
    return None if kind is SlurmRun else "only with --slurm"


def _cannot_shrink(setup: Setup, kind: type[Run]) -> str | None:
    return setup.why_not_fewer


FAULTS = {
    "kill_rank": Fault(title="kill -9 of a rank", happen=kill_rank),
    "kill_launcher": Fault(
        title="kill -9 of the launcher", happen=kill_launcher, impossible=_one_process
    ),
    "sigterm": Fault(title="SIGTERM or time limit", happen=sigterm),
    "sigstop": Fault(title="a rank that stands still", happen=sigstop, impossible=_not_watched),
    "full_disk": Fault(
        title="a full disk", happen=full_disk, on_small_disk=True, impossible=_local_only
    ),
    "damaged_checkpoint": Fault(
        title="a damaged checkpoint", happen=damaged_checkpoint, check=was_set_aside
    ),
    "slow_save": Fault(
        title="a slow save",
        happen=slow_save,
        survives=True,
        # The ranks do not wait for one that goes on beside them.
        overrides=["--checkpoint.async_mode", "disabled"],
    ),
    "requeue": Fault(title="a requeue by Slurm", happen=requeue, impossible=_slurm_only),
    "fewer_ranks": Fault(
        title="fewer ranks than before", happen=fewer_ranks, fewer=True, impossible=_cannot_shrink
    ),
}
