"""Starts the ranks of a run: one here, N by torchrun, or those that torchrun or srun started."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from mixit_titan.device import device_type, has_gpu
from mixit_titan.errors import ConfigError

_GLOO_SECONDS = 0.2


def ranks_from_environment() -> int | None:
    """World size if torchrun or srun started this process as a rank, else None.

    Under srun the variables that torch.distributed wants are set from Slurm's.
    """
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        if has_gpu() and "LOCAL_RANK" not in os.environ:
            raise ConfigError(
                "RANK and WORLD_SIZE are set, but not LOCAL_RANK, which says which GPU is this "
                "rank's: start the ranks by torchrun or srun, or set it to 0, 1, ... on each node"
            )
        _check_nccl()
        return int(os.environ["WORLD_SIZE"])
    if "SLURM_STEP_ID" not in os.environ or os.environ.get("SLURM_STEP_NUM_TASKS", "1") == "1":
        return None  # also in a shell that srun opened
    job = int(os.environ["SLURM_JOB_ID"])
    os.environ["RANK"] = os.environ["SLURM_PROCID"]
    os.environ["LOCAL_RANK"] = os.environ["SLURM_LOCALID"]
    os.environ["WORLD_SIZE"] = os.environ["SLURM_STEP_NUM_TASKS"]
    os.environ.setdefault("MASTER_ADDR", _first_host(os.environ["SLURM_STEP_NODELIST"]))
    # Below those that the system gives to connections.
    os.environ.setdefault("MASTER_PORT", str(20000 + job % 12000))
    _check_nccl()
    return int(os.environ["WORLD_SIZE"])


def local_ranks(nproc: int | None) -> int:
    """How many ranks to start here: as asked, else one per GPU, else 1."""
    if nproc is not None and nproc < 1:
        raise ConfigError(f"--nproc is {nproc}: it must be at least 1")
    gpus = torch.cuda.device_count() if has_gpu() else 0
    if has_gpu() and nproc is not None and nproc > gpus:
        raise ConfigError(f"--nproc is {nproc}, but this machine has {gpus} GPU(s)")
    return nproc or max(gpus, 1)


def launch(nproc: int, arguments: list[str], run_rank: Callable[[], None]) -> None:
    """One rank: `run_rank` in this process. More: `mixit-titan ARGUMENTS` under torchrun."""
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
        return
    from torch.distributed import run as torchrun

    options = ["--standalone", f"--nproc_per_node={nproc}"]
    if has_gpu() and shutil.which("numactl"):  # each rank on the cores that are near its GPU
        options.append("--numa-binding=node")
    options += ["-m", "mixit_titan", *arguments]
    # The ranks share the machine's cores: torchrun's default of one thread each wastes the rest.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // nproc)))
    try:
        torchrun.run(torchrun.parse_args(options))
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        sys.exit(failure.exitcode if failure.exitcode > 0 else 1)
    except SignalException as signal:
        sys.exit(128 + signal.sigval)


def leave_process_group() -> None:
    """A rank's last act, after success only: with NCCL, a rank that failed alone would wait here
    for the others."""
    torch.distributed.destroy_process_group()
    if not has_gpu():
        # Gloo's threads outlive the group (torch 2.13). One that lets go of its last tensor while
        # Python ends would abort the process: it gets the time to do so before.
        time.sleep(_GLOO_SECONDS)


def _check_nccl() -> None:
    if device_type() == "cuda" and not torch.distributed.is_nccl_available():
        raise ConfigError(
            f"torch {torch.__version__} has no NCCL, by which ranks on GPUs talk to each other: "
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
