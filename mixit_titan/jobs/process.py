"""The process of a job: how it starts, where its output goes, and how it ends."""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

from mixit_titan.errors import one_sentence
from mixit_titan.jobs.job import Job
from mixit_titan.parent import end_with_parent
from mixit_titan.reading import regular


def preload(modules: Sequence[str]) -> None:
    """Fork later processes from one that has imported these modules, which may take seconds. The
    fork server starts with the first job of this process; later calls change nothing."""
    # Importing may query CUDA itself for its devices, after which forked processes cannot use it.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    names = ["mixit_titan.jobs.uncollected", *modules]
    multiprocessing.get_context("forkserver").set_forkserver_preload(names)


def start(job: Job, share: int) -> BaseProcess:
    """Start the process of a job. `share` is the number of jobs that share the cores."""
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=_work, args=(job.work, job.arguments, job.log, share))
    process.start()
    return process


def _work(work: Callable, arguments: tuple[Any, ...], log: Path, share: int) -> None:
    """Run the job with its output redirected to its folder, including the sentence of an error."""
    gc.freeze()  # what the server has imported: no job looks through it, not even at its end
    gc.enable()
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w", opener=regular) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    end_with_parent()  # the fork server, which ends with the runner
    threading.Thread(target=_end_with_runner, daemon=True).start()
    if share > 1 and "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(max(1, torch.get_num_threads() // share))
    with one_sentence():
        work(*arguments)


def _end_with_runner() -> None:
    """Kill this process when the runner is gone: a runner that was killed cannot end its jobs,
    which would run beside those of the next one."""
    multiprocessing.parent_process().join()
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C in the block, so that whatever started processes ends them."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
