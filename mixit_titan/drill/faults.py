"""What can happen to a run, each as a function that causes it and checks how the run ended. The run
is training when it is handed over, with two checkpoints saved, and must be able to train again
afterwards."""

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
    """One thing that can go wrong."""

    title: str
    happen: Callable[[Run], None]
    """Causes the fault and returns when the run has ended or, if it `survives`, continues. Raises
    DrillFailed if it ended in another way than it should."""
    check: Callable[[Run], None] = lambda run: None
    """What else must hold once the run has finished."""
    survives: bool = False
    fewer: bool = False
    """Whether it resumes on fewer ranks."""
    overrides: list[str] = field(default_factory=list)
    """Overrides of the run, from its start."""
    on_small_disk: bool = False
    impossible: Callable[[Setup, type[Run]], str | None] = lambda setup, kind: None
    """Why the fault cannot be rehearsed; None if it can."""


def kill_rank(run: Run) -> None:
    """Kill the last rank by SIGKILL."""
    run.signal_rank(run.setup.ranks - 1, signal.SIGKILL)
    run.wait_for_end()


def kill_launcher(run: Run) -> None:
    """Kill what started the ranks by SIGKILL."""
    run.kill_launcher()
    run.wait_for_end()


def sigterm(run: Run) -> None:
    """Ask the run to stop, as before a time limit."""
    run.ask_to_stop()
    run.wait_for_end()
    _expect(run, "stopped")


def sigstop(run: Run) -> None:
    """Suspend the last rank, so that all others wait for it."""
    run.signal_rank(run.setup.ranks - 1, signal.SIGSTOP)
    run.wait_for_end()
    _expect(run, "hung")


def full_disk(run: Run) -> None:
    """Fill the disk that the run writes to."""
    ballast = run.folder / "ballast"
    fill(ballast)
    run.wait_for_end()
    ballast.unlink()
    _expect(run, "failed")
    if "is full" not in run.state.said:
        raise DrillFailed(f"the run did not report that the disk is full: {run.state.said}")


def damaged_checkpoint(run: Run) -> None:
    """Damage the newest checkpoint and kill the run. While the first rank is suspended, no newer
    checkpoint can be completed."""
    run.signal_rank(0, signal.SIGSTOP)
    newest = run.checkpoints / f"step-{newest_complete(run.checkpoints)}"
    _flip_bytes(max(newest.glob("*.distcp"), key=lambda file: file.stat().st_size))
    run.signal_rank(0, signal.SIGKILL)
    run.wait_for_end()


def was_set_aside(run: Run) -> None:
    """Check that the damaged checkpoint was noticed."""
    if not any(run.checkpoints.glob(".broken-*")):
        raise DrillFailed("the damaged checkpoint was not noticed")


def slow_save(run: Run) -> None:
    """Make a save take longer than a step may: that is no reason to end the run."""
    run.hold_save(run.setup.long_save)
    if len(run.started_at) > 1 or run.state.word != "running":
        raise DrillFailed(f"the run did not wait for a save: {run.state.said or run.said()}")


def requeue(run: Run) -> None:
    """Requeue the job."""
    run.requeue()
    run.wait_for_end()


def fewer_ranks(run: Run) -> None:
    """Stop the run, which then resumes on fewer ranks."""
    if isinstance(run, SlurmRun):
        run.cancel()
    else:
        run.ask_to_stop()
    run.wait_for_end()


def _expect(run: Run, word: str) -> None:
    if run.state.word != word:
        raise DrillFailed(f"the run should be {word} but is {run.state.word}: {run.said()}")


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
    return None if setup.watched else "watch.enable is false: nothing would notice"


def _local_only(setup: Setup, kind: type[Run]) -> str | None:
    return (
        None if kind is LocalRun else "a disk to fill can only be mounted here: leave out --slurm"
    )


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
    "sigstop": Fault(title="a rank that hangs", happen=sigstop, impossible=_not_watched),
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
        # The ranks would not wait for an asynchronous save.
        overrides=["--checkpoint.async_mode", "disabled"],
    ),
    "requeue": Fault(title="a requeue by Slurm", happen=requeue, impossible=_slurm_only),
    "fewer_ranks": Fault(
        title="fewer ranks than before", happen=fewer_ranks, fewer=True, impossible=_cannot_shrink
    ),
}
