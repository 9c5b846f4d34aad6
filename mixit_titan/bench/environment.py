"""What a measurement depends on beside the settings."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import mixit_titan
from mixit_titan.runtime.device import has_gpu


def environment() -> dict[str, Any]:
    return {
        "mixit_titan": mixit_titan.__version__,
        "commit": commit(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": device_name(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "clock": "CUDA events" if has_gpu() else "perf_counter",
    }


def device_name() -> str:
    """Of the GPU, or of the processor: nothing that names the machine."""
    if has_gpu():
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def commit() -> str | None:
    """Of the checkout that the package lies in; None once it is installed elsewhere."""
    folder = Path(mixit_titan.__file__).parent.parent
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
