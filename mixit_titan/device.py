"""The device that this process computes on, and the patches by which torchtitan 0.3.0 runs there.

By itself torchtitan runs neither without a GPU nor on torch 2.13. Importing this module fixes both,
even if torchtitan was imported before: every module that needs the device or torchtitan's Trainer
imports it. On a machine with torch 2.15 and a GPU that torchtitan knows, none of the patches
changes anything (docs/torchtitan.md lists them).
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
    """Whether this process computes on a GPU."""
    return utils.device_type != "cpu"


def device_type() -> str:
    """The type of device that this process computes on: `cuda` or `cpu`, for instance."""
    return utils.device_type


def local_device() -> torch.device:
    """The device of this rank; the first device in a process that was not started as a rank."""
    if not has_gpu() or "LOCAL_RANK" in os.environ:
        return utils.get_local_device()
    return torch.device(utils.device_type, 0)


def check_device() -> None:
    """Raise a ConfigError where there is a GPU that torch cannot use, unless it was hidden: nobody
    should compute on the CPU by accident. Called by everything that computes on `device_type()`
    without having been told to."""
    if has_gpu() or hidden(os.environ):
        return
    gpus = find_gpus()
    if gpus.count:
        version = torch.__version__
        why, advice = why_unusable(gpus.driver, version, torch.version.cuda, os.environ)
        raise ConfigError(
            f"torch cannot use the GPU of this machine: {why}. Either {advice} (`mixit-titan "
            "doctor` says more), or choose the CPU explicitly: --device cpu for train, task and "
            "sweep, or CUDA_VISIBLE_DEVICES= in the environment for any command"
        )


def _let_segments_grow() -> None:
    """Let CUDA's allocator grow its segments, so that a validation or a recomputation of another
    size does not fragment memory. CUDA reads the setting when it is initialized, which happens as
    soon as anyone asks for the name of a GPU."""
    if not os.environ.keys() & {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}:
        os.environ.update(OUR_ALLOCATOR)


def _prepare_torchtitan() -> None:
    if torch._utils._get_available_device_type() is None:
        _use_cpu()
    if not hasattr(torch.distributed, "set_timeout"):
        # The trainer calls it after the first step; torch 2.13 has it under a private name only.
        torch.distributed.set_timeout = _set_timeout
    # Report no MFU where the peak is not known.
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
    # utils decides at import, and other modules have copied the decision.
    for name, module in list(sys.modules.items()):
        if name.startswith("torchtitan."):
            for attribute in device.keys() & vars(module).keys():
                setattr(module, attribute, device[attribute])
    # torchtitan's memory monitor asks CUDA.
    metrics.build_device_memory_monitor = ProcessMemoryMonitor
    # After the first step the trainer lowers the timeout of all process groups, behind a barrier
    # that needs the index of a GPU. Gloo keeps its first timeout (comm.init_timeout_seconds).
    dist_utils.set_pg_timeouts = lambda timeout, parallel_dims: None


def _set_timeout(timeout: timedelta, group: torch.distributed.ProcessGroup | None = None) -> None:
    torch.distributed.distributed_c10d._set_pg_timeout(timeout, group)


def _known_peak_flops(torchtitan_peak_flops: Callable[[str], float], device_name: str) -> float:
    """The peak of a device, or NaN where torchtitan does not know it: torchtitan itself falls back
    to the peak of an A100, also for an A1000."""
    if device_name == ProcessMemoryMonitor.device_name:
        return math.nan
    peak = torchtitan_peak_flops(device_name)
    fallback = peak == 312e12 and not re.search(r"\bA100\b", device_name)
    return math.nan if fallback else peak


class ProcessMemoryMonitor:
    """Stands in for torchtitan's DeviceMemoryMonitor on a CPU and reports the peak resident memory
    of this process."""

    device_name = "CPU"

    def get_peak_stats(self) -> tuple:
        """The peak resident memory in GiB and as a percentage of the machine's memory."""
        from torchtitan.components.metrics import DeviceMemStats

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        gib, percent = peak / 2**30, 100 * peak / total
        return DeviceMemStats(gib, percent, gib, percent, 0, 0)

    def reset_peak_stats(self) -> None:
        """Do nothing: the peak of a process cannot be reset, so it covers the complete run."""


_let_segments_grow()
_prepare_torchtitan()
