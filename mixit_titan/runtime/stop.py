"""A signal asks a run to stop; all ranks agree on the step at which they do.

The job script sends SIGUSR1 some minutes before the time limit, Slurm sends SIGTERM before it
preempts. A rank only notes the signal. At fixed points (after loading, after every step, at every
batch of a validation) the ranks compare notes: they stop if any of them was asked to. A second
signal finds the note made.
"""

import functools
import signal
import threading
from types import FrameType

import torch
import torch.distributed as dist

_asked = threading.Event()


class StopAgreed(Exception):
    """All ranks leave now, at the same step."""


@functools.cache
def listen() -> None:
    """From here on SIGUSR1 and SIGTERM are noted."""
    # Blocked, and waited for in a thread: the processes that a rank starts (compilation, wandb)
    # inherit the block, and a signal to the whole job step does not kill them.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    threading.Thread(target=_wait_for_signal, daemon=True).start()
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, _note)


def _wait_for_signal() -> None:
    while True:
        signal.sigwait([signal.SIGUSR1])
        _asked.set()


def _note(signum: int, frame: FrameType | None) -> None:
    _asked.set()


class Agreement:
    """Build it on all ranks, once the default process group is there."""

    def __init__(self) -> None:
        # Notes are on the host: comparing them there does not wait for the GPU.
        self.group = dist.new_group(backend="gloo") if dist.get_world_size() > 1 else None

    def check(self) -> None:
        """Raise StopAgreed on all ranks if any was asked to stop. All must call it together."""
        asked = torch.tensor(int(_asked.is_set()))
        if self.group is not None:
            dist.all_reduce(asked, dist.ReduceOp.MAX, group=self.group)
        if asked:
            raise StopAgreed
