"""The device that this process computes on; and torchtitan 0.3.0, prepared to run there.

torchtitan does not run by itself without a GPU, nor on torch 2.13. Importing this module mends
that, also where torchtitan was imported before: whatever of this project needs the device, or
torchtitan's Trainer, imports it. On a machine with a GPU that torchtitan knows and torch 2.15, none
of the patches changes anything (docs/torchtitan.md lists them).
"""

import functools
import math
import os
import re
import resource
import sys
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed
import torch.distributed.distributed_c10d
from torchtitan.tools import utils

from mixit_titan.errors import ConfigError
from mixit_titan.gpus import OUR_ALLOCATOR, find_gpus, hidden, why_unusable


def has_gpu() -> bool:
    return utils.device_type != "cpu"


def device_type() -> str:
    return utils.device_type


def local_device() -> torch.device:
    """The device of this rank; the first one for a process that nobody started as a rank."""
    if not has_gpu() or "LOCAL_RANK" in os.environ:
        return utils.get_local_device()
    return torch.device(utils.device_type, 0)


def check_device() -> None:
    """Refuse to take the CPU where there is a GPU, unless it was hidden: a ConfigError. For
    whatever computes on `device_type()` without having been told so."""
    if has_gpu() or hidden(os.environ):
        return
    gpus = find_gpus()
    if gpus.count:
        version = torch.__version__
        why, advice = why_unusable(gpus.driver, version, torch.version.cuda, os.environ)
        raise ConfigError(
            f"torch cannot use the GPU of this machine: {why}. Either {advice} (`mixit-titan "
            "doctor` says more), or say that the CPU is meant: --device cpu for train, task and "
            "sweep, CUDA_VISIBLE_DEVICES= in the environment for any command"
        )


def _let_segments_grow() -> None:
    """Segments of GPU memory that grow are not fragmented by a validation or a recomputation of
    another size. CUDA's allocator reads it when CUDA is initialized, which asking for the name of a
    GPU does."""
    if not os.environ.keys() & {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}:
        os.environ.update(OUR_ALLOCATOR)


def _prepare_torchtitan() -> None:
    if torch._utils._get_available_device_type() is None:
        _use_cpu()
    if not hasattr(torch.distributed, "set_timeout"):
        # torch 2.13: the trainer calls it after the first step, and only the private name exists.
        torch.distributed.set_timeout = _set_timeout
    # No MFU from a peak that nobody knows.
    utils.get_peak_flops = functools.partial(_known_peak_flops, utils.get_peak_flops)


def _use_cpu() -> None:
    """torchtitan falls back to "cuda" where there is no accelerator; say "cpu" instead."""
    from torchtitan.components import metrics
    from torchtitan.distributed import utils as dist_utils

    device = {
        "device_type": "cpu",
        "device_module": torch.cpu,
        "get_local_device": lambda: torch.device("cpu"),
    }
    # utils decides when it is imported, and other modules copy the decision.
    for name, module in list(sys.modules.items()):
        if name.startswith("torchtitan."):
            for attribute in device.keys() & vars(module).keys():
                setattr(module, attribute, device[attribute])
    # The memory monitor asks CUDA.
    metrics.build_device_memory_monitor = ProcessMemoryMonitor
    # After the first step the trainer lowers the timeout of all groups, behind a barrier that takes
    # the index of a GPU. Gloo keeps the timeout that it began with (comm.init_timeout_seconds).
    dist_utils.set_pg_timeouts = lambda timeout, parallel_dims: None


def _set_timeout(timeout: timedelta, group: torch.distributed.ProcessGroup | None = None) -> None:
    torch.distributed.distributed_c10d._set_pg_timeout(timeout, group)


def _known_peak_flops(torchtitan_peak_flops: Callable[[str], float], device_name: str) -> float:
    """torchtitan takes an A100's peak for a device that it does not know, and for an A1000; we take
    none (NaN)."""
    if device_name == ProcessMemoryMonitor.device_name:
        return math.nan
    peak = torchtitan_peak_flops(device_name)
    fallback = peak == 312e12 and not re.search(r"\bA100\b", device_name)
    return math.nan if fallback else peak


class ProcessMemoryMonitor:
    """Stands in for torchtitan's DeviceMemoryMonitor: the peak resident memory of this process."""

    device_name = "CPU"

    def get_peak_stats(self) -> tuple:
        from torchtitan.components.metrics import DeviceMemStats

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        gib, percent = peak / 2**30, 100 * peak / total
        return DeviceMemStats(gib, percent, gib, percent, 0, 0)

    def reset_peak_stats(self) -> None:
        """A process's peak cannot be reset: it is that of the whole run."""


_let_segments_grow()
_prepare_torchtitan()
