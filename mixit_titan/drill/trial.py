"""Rehearses one fault: a run is disturbed, trains again, and is compared with the uninterrupted
one."""

import contextlib
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from mixit_titan.drill.comparison import compare
from mixit_titan.drill.faults import Fault
from mixit_titan.drill.run import DrillFailed, Run, TooQuick
from mixit_titan.drill.small_disk import small_disk
from mixit_titan.drill.toy import INTERVAL
from mixit_titan.json_form import Form

_ATTEMPTS = 3

Outcome = Literal["passed", "failed", "skipped"]
TRIAL: Form = {
    **dict.fromkeys(("fault", "outcome", "why"), str),
    **dict.fromkeys(("seconds", "losses", "weights"), (float, None)),
    "steps_lost": (int, None),
}
"""The form of a Trial in JSON."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result of one fault, as in drill.json."""

    fault: str
    outcome: Outcome
    why: str = ""
    """Why it failed or was skipped."""
    seconds: float | None = None
    """From the fault until the run had trained another step."""
    steps_lost: int | None = None
    """Steps that had to be repeated."""
    losses: float | None = None
    """The largest difference to the uninterrupted run."""
    weights: float | None = None

    def described(self) -> dict[str, Any]:
        """The trial as plain data."""
        return asdict(self)


def try_fault(
    name: str, fault: Fault, make: Callable[[], Run], unbroken: Path, *, exact: bool
) -> Trial:
    """Start a run in its folder, which is emptied first, and disturb it; repeat if it finished too
    early."""
    for _ in range(_ATTEMPTS):
        trial = _attempt(name, fault, make(), unbroken, exact=exact)
        if trial is not None:
            return trial
    why = "the runs finished before they could be disturbed: set --training.steps 1000"
    return Trial(fault=name, outcome="failed", why=why)


def _attempt(name: str, fault: Fault, run: Run, unbroken: Path, *, exact: bool) -> Trial | None:
    """One attempt; None if the run finished before it could be disturbed."""
    shutil.rmtree(run.home, ignore_errors=True)
    with contextlib.ExitStack() as stack:
        if fault.on_small_disk:
            # Room for everything that the uninterrupted run wrote, and for what is set aside.
            size = 2 * _size(unbroken) + (16 << 20)
            if not stack.enter_context(small_disk(run.folder, str(size))):
                why = "a small disk cannot be mounted here, because that takes root"
                return Trial(fault=name, outcome="skipped", why=why)
        stack.callback(run.close)
        try:
            return _disturbed(name, fault, run, unbroken, exact=exact and not fault.fewer)
        except (TooQuick, ProcessLookupError):  # it had ended before the signal
            return None
        except DrillFailed as failure:
            return Trial(fault=name, outcome="failed", why=str(failure))


def _disturbed(name: str, fault: Fault, run: Run, unbroken: Path, *, exact: bool) -> Trial:
    run.start(fault.overrides)
    run.wait_for_step(2 * INTERVAL + 3, saved=2)
    begun = time.monotonic()
    fault.happen(run)
    done = run.step
    if not fault.survives and done >= run.setup.steps:
        raise TooQuick("it had completed its last step before the fault reached it")
    run.mark()
    if not fault.survives:
        run.start(fault.overrides, fewer=fault.fewer)
    run.wait_for_training()
    seconds = time.monotonic() - begun
    resumed = done if fault.survives else run.started_at[-1]
    run.wait_for_finish()
    fault.check(run)
    difference = compare(run.folder, unbroken, steps=run.setup.steps)
    difference.check(exact=exact)
    return Trial(
        fault=name,
        outcome="passed",
        seconds=round(seconds, 1),
        steps_lost=done - resumed,
        losses=difference.losses,
        weights=difference.weights,
    )


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
