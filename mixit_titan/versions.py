"""Which code ran, and on what: versions, commit, device."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mixit_titan import __version__


def environment() -> dict[str, Any]:
    """What a measurement depends on besides its settings."""
    import torch

    from mixit_titan.device import has_gpu

    return {
        "mixit_titan": __version__,
        "commit": _git("describe", "--always", "--dirty", "--abbrev=12").strip() or None,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": device_name(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "clock": "CUDA events" if has_gpu() else "perf_counter",
    }


def device_name() -> str:
    """The name of the GPU, or of the processor; it does not identify the machine."""
    import torch

    from mixit_titan.device import has_gpu

    if has_gpu():
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def code_version() -> tuple[dict[str, Any], str]:
    """Versions and commit, and the diff to that commit (empty outside of a checkout)."""
    commit = _git("rev-parse", "HEAD")
    difference = _git("diff", "HEAD") if commit else ""
    return {
        "mixit_titan": __version__,
        "commit": commit.strip() or None,
        "changed": bool(difference),
        "torchtitan": version("torchtitan"),
        "torch": version("torch"),
        "python": platform.python_version(),
    }, difference


def _git(*arguments: str) -> str:
    """The output of git in the checkout that contains the package; "" if the package is installed
    elsewhere."""
    folder = Path(__file__).parents[1]
    if not (
        folder / ".git"
    ).exists():  # once installed, it may be inside a checkout of something else
        return ""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, errors="replace"
        )
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""
