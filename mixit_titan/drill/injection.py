"""Injects a fault into a rank, on the machine where the rank runs, which with Slurm is a node of
the job:

python -m mixit_titan.drill.injection signal PROCESS NUMBER
python -m mixit_titan.drill.injection kill_launcher PROCESS
python -m mixit_titan.drill.injection hold_save PROCESS FOLDER SECONDS
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_SECONDS_TO_SAVE = 300.0
_LOOKS = 0.002  # seconds between two checks


def kill_launcher(process: int) -> None:
    """Kill the torchrun that started a rank."""
    stat = Path(f"/proc/{process}/stat").read_text()
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)


def hold_save(process: int, folder: Path, seconds: float) -> None:
    """Make the next save take long: the first rank, which gives a checkpoint its final name, is
    suspended while one is being written."""
    deadline = time.monotonic() + _SECONDS_TO_SAVE
    while time.monotonic() < deadline:
        os.kill(process, 0)  # raises ProcessLookupError if it has ended
        time.sleep(_LOOKS)
        if not _is_saving(folder):
            continue
        with _halted(process):
            time.sleep(10 * _LOOKS)
            if _is_saving(folder):
                time.sleep(seconds)
                return
    raise TimeoutError(f"nothing was saved in {folder} for {_SECONDS_TO_SAVE:.0f} s")


def _is_saving(folder: Path) -> bool:
    """Whether a save is under way for which the other ranks still wait: until its metadata are
    written."""
    return any(not (each / ".metadata").exists() for each in folder.glob(".unfinished-*"))


@contextlib.contextmanager
def _halted(process: int) -> Iterator[None]:
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


if __name__ == "__main__":
    what, process, *others = sys.argv[1:]
    if what == "signal":
        os.kill(int(process), int(others[0]))
    elif what == "kill_launcher":
        kill_launcher(int(process))
    else:
        hold_save(int(process), Path(others[0]), float(others[1]))
