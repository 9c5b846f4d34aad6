"""Processes that end with their parent, however it ended."""

import ctypes
import os
import signal
import sys
import threading
import time

LAUNCHER = "MIXIT_TITAN_LAUNCHER"
"""Variable with the number of the process that starts ranks by torchrun."""
_PR_SET_PDEATHSIG = 1
_SECONDS_BETWEEN = 1.0

_process = 0  # the process that is set up; a fork of it is not


def end_with_parent(parent: int | None = None) -> None:
    """Kill this process when its parent is gone, because it would write beside the process that
    replaces it. Linux does so by itself, even while Python is not running; elsewhere a thread
    polls. `parent` is the parent's process ID, by which one that is already gone is noticed.

    The parent must have started this process from its main thread: Linux takes the end of the
    starting thread for the end of the parent.
    """
    global _process
    if _process == os.getpid():
        return
    _process, parent = os.getpid(), parent or os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_look, args=(parent,), daemon=True).start()


def end_with_launcher() -> None:
    """Called by a rank as early as possible: a torchrun that was killed cannot end its ranks."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        end_with_parent(int(os.environ.get(LAUNCHER, "0")))


def ending_with_this(*words: str) -> list[str]:
    """The command `mixit-titan WORDS`, for a process that ends with this one."""
    code = f"from mixit_titan.parent import end_with_parent; end_with_parent({os.getpid()}); "
    return [sys.executable, "-c", f"{code}from mixit_titan.cli import main; main()", *words]


def _look(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN)
    os.kill(os.getpid(), signal.SIGKILL)
