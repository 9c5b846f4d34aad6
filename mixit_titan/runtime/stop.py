"""Stops a run on a signal, with all ranks agreeing on the step.

The job script sends SIGUSR1 some minutes before the time limit, Slurm sends SIGTERM before it
preempts, a user presses Ctrl-C (SIGINT). A rank only notes the signal. At fixed points (after
loading, after every step, at every batch of a validation) the ranks compare notes and stop if any
of them was asked to. A second signal changes nothing; a second Ctrl-C ends the rank at once.
"""

import functools
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch
import torch.distributed as dist

_NUMBERS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)
_SECONDS_BETWEEN = 0.5  # two Ctrl-C; if less, it is one, passed on by launcher and terminal

_asked = threading.Event()
_interrupted = threading.Event()
_saves = threading.Event()


class StopAgreed(Exception):
    """Raised on all ranks at the same step: they stop now."""


@functools.cache
def listen() -> None:
    """Start to note SIGUSR1, SIGTERM and SIGINT."""
    # Python tells a thread of a signal at once, whereas a handler would have to wait until the
    # main thread returns, from a collective for instance. A fork has its own pipe, or none.
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
    for number in _NUMBERS:
        signal.signal(number, _leave_it_to_the_thread)
    threading.Thread(target=_listen, args=(woken,), daemon=True).start()
    # Blocked except for that thread: the processes that a rank starts (compilation, wandb) inherit
    # the mask, so that neither a signal to all of the job step nor Ctrl-C kills them.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGINT])


@contextmanager
def nothing_to_save() -> Iterator[None]:
    """Within the block, a signal ends the process at once, even in the middle of a step of many
    minutes: the system handles it, without waiting for Python."""
    listen()  # otherwise the first trainer would, and undo this
    before = {number: signal.signal(number, signal.SIG_DFL) for number in _NUMBERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def expect_to_save() -> None:
    """From now on there is something to save; before that, Ctrl-C ends the rank at once."""
    _saves.set()


def note_interrupt() -> None:
    """Note a Ctrl-C in the launcher of a run."""
    _interrupted.set()


def was_interrupted() -> bool:
    """Whether the user has pressed Ctrl-C."""
    return _interrupted.is_set()


def _leave_it_to_the_thread(signum: int, frame: FrameType | None) -> None:
    pass


def _listen(woken: int) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _NUMBERS)
    first = 0.0
    while True:
        for number in os.read(woken, 64):
            if number == signal.SIGINT:
                if not _saves.is_set():
                    _end("Interrupted: there was nothing to save yet")
                if not _interrupted.is_set():
                    first = time.monotonic()
                    _say(
                        "Interrupted: stopping after this step and saving; Ctrl-C again to quit now"
                    )
                elif time.monotonic() > first + _SECONDS_BETWEEN:
                    _end("Interrupted again: quit without saving")
                _interrupted.set()
            if number in _NUMBERS:
                _asked.set()


def _say(words: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        os.write(2, f"\n{words}\n".encode())


def _end(words: str) -> None:
    _say(words)
    os._exit(128 + signal.SIGINT)


class Agreement:
    """Lets all ranks stop at the same step. Build it on all ranks, once the default process group
    exists."""

    def __init__(self) -> None:
        # Notes are on the host, and comparing them there does not wait for the GPU.
        self.group = dist.new_group(backend="gloo") if dist.get_world_size() > 1 else None

    def sums(self, *values: float) -> list[float]:
        """Sums over all ranks, the same on each. All ranks must call it together."""
        total = torch.tensor(values, dtype=torch.float64)
        if self.group is not None:
            dist.all_reduce(total, group=self.group)
        return total.tolist()

    def check(self, *values: float) -> list[float]:
        """Raise StopAgreed on all ranks if any was asked to stop; else return the `sums` of the
        values, which are exchanged in the same message. All ranks must call it together."""
        asked, *sums = self.sums(float(_asked.is_set()), *values)
        if asked:
            raise StopAgreed
        return sums
