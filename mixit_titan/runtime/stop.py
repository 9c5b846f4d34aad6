"""A signal asks a run to stop; all ranks agree on the step at which they do.

The job script sends SIGUSR1 some minutes before the time limit, Slurm sends SIGTERM before it
preempts, a user presses Ctrl-C (SIGINT). A rank only notes the signal. At fixed points (after
loading, after every step, at every batch of a validation) the ranks compare notes: they stop if any
of them was asked to. A second signal finds the note made; a second Ctrl-C ends the rank at once.
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
_SECONDS_BETWEEN = 0.5  # of two Ctrl-C; less: it is one, which launcher and terminal both pass on

_asked = threading.Event()
_interrupted = threading.Event()
_saves = threading.Event()


class StopAgreed(Exception):
    """All ranks leave now, at the same step."""


@functools.cache
def listen() -> None:
    """From here on SIGUSR1, SIGTERM and SIGINT are noted."""
    # Python tells a thread of a signal at once, where a handler would have to wait until the main
    # thread has come back, from a collective say. A fork has a pipe of its own, or none.
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
    for number in _NUMBERS:
        signal.signal(number, _leave_it_to_the_thread)
    threading.Thread(target=_listen, args=(woken,), daemon=True).start()
    # Blocked but for that thread: the processes that a rank starts (compilation, wandb) inherit the
    # block, and neither a signal to the whole job step nor Ctrl-C kills them.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGINT])


@contextmanager
def nothing_to_save() -> Iterator[None]:
    """Within, a signal ends the process at once, also in the midst of a step of many minutes: the
    system does it, which need not wait for Python."""
    listen()  # else the first trainer would, and turn this off
    before = {number: signal.signal(number, signal.SIG_DFL) for number in _NUMBERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def expect_to_save() -> None:
    """From here on there is something to save: before, Ctrl-C ends the rank at once."""
    _saves.set()


def note_interrupt() -> None:
    """For the launcher of a run."""
    _interrupted.set()


def was_interrupted() -> bool:
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
                    _say("Interrupted: stops after this step and saves; Ctrl-C again ends at once")
                elif time.monotonic() > first + _SECONDS_BETWEEN:
                    _end("Interrupted again: ended at once")
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
    """Build it on all ranks, once the default process group is there."""

    def __init__(self) -> None:
        # Notes are on the host: comparing them there does not wait for the GPU.
        self.group = dist.new_group(backend="gloo") if dist.get_world_size() > 1 else None

    def sums(self, *values: float) -> list[float]:
        """Over all ranks, the same on each of them. All must call it together."""
        total = torch.tensor(values, dtype=torch.float64)
        if self.group is not None:
            dist.all_reduce(total, group=self.group)
        return total.tolist()

    def check(self, *values: float) -> list[float]:
        """Raise StopAgreed on all ranks if any was asked to stop; else the `sums` of the values,
        which the ranks exchange with the question. All must call it together."""
        asked, *sums = self.sums(float(_asked.is_set()), *values)
        if asked:
            raise StopAgreed
        return sums
