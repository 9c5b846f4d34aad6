"""Starts the ranks of a run: one in this process, N by torchrun, or those that torchrun or srun
started."""

import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import torch
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from mixit_titan.device import device_type, has_gpu
from mixit_titan.errors import ConfigError
from mixit_titan.parent import LAUNCHER, end_with_launcher
from mixit_titan.runtime.stop import note_interrupt, was_interrupted

_GLOO_SECONDS = 0.2
_OF_TORCHRUN = "torch.distributed.elastic.multiprocessing.api"
_ENDED, _ENDING = "failed (exitcode: ", "Sending process "
_SPOKE = (1, 2, 128 + signal.SIGINT)
"""Exit codes of a rank that has reported its failure itself."""


def ranks_from_environment() -> int | None:
    """World size if torchrun or srun started this process as a rank, else None.

    Under srun, the variables that torch.distributed needs are set from Slurm's.
    """
    end_with_launcher()  # for a rank that torchtitan's own entry point has started
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        if has_gpu() and "LOCAL_RANK" not in os.environ:
            raise ConfigError(
                "RANK and WORLD_SIZE are set, but not LOCAL_RANK, which assigns a GPU to this "
                "rank: start the ranks with torchrun or srun, or set it to 0, 1, ... on each node"
            )
        _check_ranks_on_gpus()
        return int(os.environ["WORLD_SIZE"])
    if "SLURM_STEP_ID" not in os.environ or os.environ.get("SLURM_STEP_NUM_TASKS", "1") == "1":
        return None  # also in an interactive shell of srun
    job = int(os.environ["SLURM_JOB_ID"])
    os.environ["RANK"] = os.environ["SLURM_PROCID"]
    os.environ["LOCAL_RANK"] = os.environ["SLURM_LOCALID"]
    os.environ["WORLD_SIZE"] = os.environ["SLURM_STEP_NUM_TASKS"]
    os.environ.setdefault("MASTER_ADDR", _first_host(os.environ["SLURM_STEP_NODELIST"]))
    # Below the ephemeral ports.
    os.environ.setdefault("MASTER_PORT", str(20000 + job % 12000))
    _check_ranks_on_gpus()
    return int(os.environ["WORLD_SIZE"])


def local_ranks(nproc: int | None) -> int:
    """How many ranks to start on this machine: `nproc`, else one per GPU, else 1."""
    if nproc is not None and nproc < 1:
        raise ConfigError(f"--nproc is {nproc}: it must be at least 1")
    gpus = _gpus()
    if has_gpu() and nproc is not None and nproc > len(gpus):
        raise ConfigError(f"--nproc is {nproc}, but this machine has {_said(gpus)}")
    if nproc is None and len(set(gpus)) > 1:
        raise ConfigError(
            f"this machine has {_said(gpus)}, and all ranks would wait for the slowest: select "
            "GPUs of one kind by CUDA_VISIBLE_DEVICES, or set the number of ranks by --nproc"
        )
    return nproc or max(len(gpus), 1)


def _gpus() -> list[str]:
    """The names of the GPUs that this process sees."""
    count = torch.cuda.device_count() if has_gpu() else 0
    return [torch.cuda.get_device_name(n) for n in range(count)]


def _said(gpus: list[str]) -> str:
    """GPUs in words: `7 x NVIDIA H100 80GB HBM3 and 1 x NVIDIA T400 4GB`."""
    kinds = [f"{gpus.count(name)} x {name}" for name in sorted(set(gpus))]
    said = " and ".join(kinds) or "none that torch can use"
    slices = "MIG" in said
    return f"{said} (MIG slices, of which a process can use only one)" if slices else said


def launch(nproc: int, arguments: list[str], run_rank: Callable[[], None]) -> int:
    """Run one rank in this process (`run_rank`), or more as `mixit-titan ARGUMENTS` under torchrun.
    Returns the exit code, which is 0 if all ranks succeeded, also when they were asked to stop."""
    _check_nccl()
    if nproc == 1:
        os.environ |= {
            "RANK": "0",
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "1",
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(_free_port()),
        }
        run_rank()
        return 0
    from torch.distributed import run as torchrun

    options = ["--standalone", f"--nproc_per_node={nproc}", "--signals-to-handle=SIGHUP,SIGQUIT"]
    if has_gpu() and shutil.which("numactl"):  # each rank on the cores near its GPU
        options.append("--numa-binding=node")
    options += ["-m", "mixit_titan", *arguments]
    # The ranks share the machine's cores; torchrun's default of one thread each wastes the rest.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // nproc)))
    os.environ[LAUNCHER] = str(os.getpid())
    try:
        with _signals_passed_on(), _ranks_speak_for_themselves():
            torchrun.run(torchrun.parse_args(options))
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        code = failure.exitcode  # or minus the signal that killed a rank
        return code if code >= 0 else 128 - code
    except SignalException as asked:
        return 128 + asked.sigval
    finally:
        del os.environ[LAUNCHER]
    return 0


@contextmanager
def _signals_passed_on() -> Iterator[None]:
    """Pass Ctrl-C and SIGTERM on to the ranks, which torchrun keeps in process groups of their own.
    torchrun would pass them on, too, but kill what has not ended after 30 s, even in the middle of
    a save. A second Ctrl-C ends this process at once, and the ranks with it (parent.py)."""

    def pass_on(signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGINT:
            if was_interrupted():
                os._exit(128 + signum)
            note_interrupt()
        ranks = _groups_of_children(os.getpid())
        if not ranks:  # none yet; or there is no /proc, and torchrun must do it
            raise SignalException(f"signal {signum}", sigval=signal.Signals(signum))
        for rank in ranks:
            with suppress(ProcessLookupError):
                os.kill(rank, signum)

    before = {n: signal.signal(n, pass_on) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _ranks_speak_for_themselves() -> Iterator[None]:
    """Suppress torchrun's own lines after a rank has reported its failure. Its lines about a rank
    that was killed by a signal remain: nobody else reports that."""

    def is_news(record: logging.LogRecord) -> bool:
        if record.msg.startswith(_ENDED):
            return record.args[0] not in _SPOKE
        return not record.msg.startswith(_ENDING)

    logger = logging.getLogger(_OF_TORCHRUN)
    logger.addFilter(is_news)
    try:
        yield
    finally:
        logger.removeFilter(is_news)


def _groups_of_children(process: int) -> list[int]:
    """The child processes of a process that lead a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended in the meantime
            _, parent, group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(parent) == process and group == stat.parent.name:
                found.append(int(group))
    return found


def leave_process_group() -> None:
    """The last act of a rank, after success only: with NCCL, a rank that failed alone would wait
    here for the others."""
    torch.distributed.destroy_process_group()
    if not has_gpu():
        # Gloo's threads outlive the group (torch 2.13). One that releases its last tensor while
        # Python exits would abort the process: give it the time to do so before.
        time.sleep(_GLOO_SECONDS)


def _check_ranks_on_gpus() -> None:
    """Check ranks that others have started: each needs a GPU of its own, and NCCL."""
    _check_nccl()
    if device_type() != "cuda":
        return
    # torchrun and srun tell how many ranks this node has; other launchers do not.
    ranks = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("SLURM_STEP_TASKS_PER_NODE", "0")
    here = max(int(re.match(r"\d+", ranks)[0]), int(os.environ["LOCAL_RANK"]) + 1)
    gpus = _gpus()
    if here > len(gpus):
        raise ConfigError(
            f"this node has {here} ranks, and each of them sees {_said(gpus)}: start fewer, or let "
            "every rank see all GPUs of its node (srun --gpus-per-node, not --gpus-per-task)"
        )


def _check_nccl() -> None:
    if device_type() == "cuda" and not torch.distributed.is_nccl_available():
        raise ConfigError(
            f"torch {torch.__version__} has no NCCL, which ranks on GPUs need to communicate: "
            "install the CUDA build of torch from pytorch.org, or set CUDA_VISIBLE_DEVICES= to "
            "train on the CPU"
        )


def _first_host(nodelist: str) -> str:
    if "[" not in nodelist and "," not in nodelist:
        return nodelist
    shown = subprocess.run(
        ["scontrol", "show", "hostnames", nodelist], capture_output=True, text=True, check=True
    )
    return shown.stdout.splitlines()[0]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]
