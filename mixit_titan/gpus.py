"""What the operating system reports about NVIDIA GPUs and their driver, without torch, which may be
unable to use them."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LEAST_DRIVER = {11: 450, 12: 525, 13: 580}
"""CUDA's major version -> the oldest driver that any of its builds runs with, from NVIDIA's table
(https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html)."""

OUR_ALLOCATOR = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
"""Environment variables that device.py sets for every command unless they are set already."""

_SECONDS = 30  # nvidia-smi wakes sleeping GPUs one after another


@dataclass(frozen=True)
class Gpus:
    """The GPUs of this machine, whether or not this process may use them."""

    count: int
    driver: str | None = None


def find_gpus(root: Path = Path("/")) -> Gpus:
    """Count GPUs by the files that the driver creates, or by nvidia-smi where it creates none, as
    in WSL."""
    devices = [*(root / "dev").glob("nvidia[0-9]*")]
    known = [*(root / "proc/driver/nvidia/gpus").glob("*")]
    count = max(len(devices), len(known))
    if not count:
        listed = nvidia_smi("-L") or ""
        count = sum(line.startswith("GPU ") for line in listed.splitlines())
    return Gpus(count, _driver(root) if count else None)


def _driver(root: Path) -> str | None:
    """`NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue ...` -> 550.54.15"""
    try:
        text = (root / "proc/driver/nvidia/version").read_text()
    except OSError:
        text = nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader") or ""
    found = re.search(r"\b\d{3,4}\.\d+(\.\d+)?\b", text)
    return found[0] if found else None


def nvidia_smi(*arguments: str) -> str | None:
    """The output of nvidia-smi; None where it is missing or fails."""
    if shutil.which("nvidia-smi") is None:
        return None
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def hidden(environment: Mapping[str, str]) -> bool:
    """Whether CUDA_VISIBLE_DEVICES names no GPU, which means that the user chose the CPU. CUDA
    reads the names up to the first invalid one: "", -1 and Slurm's NoDevFiles hide all GPUs."""
    named = environment.get("CUDA_VISIBLE_DEVICES")
    return named is not None and not re.match(r"\s*(\d|GPU-|MIG-)", named)


def hide_gpus() -> None:
    """Hide all GPUs from this process, if it has not imported torch yet, and from its children."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def least_driver(cuda: str) -> int | None:
    """The oldest driver for a version of CUDA such as torch.version.cuda = 13.0; None if
    unknown."""
    return LEAST_DRIVER.get(int(cuda.split(".")[0]))


def too_old(driver: str | None, cuda: str) -> bool:
    """Whether the driver is older than that version of CUDA requires."""
    least = least_driver(cuda)
    return driver is not None and least is not None and int(driver.split(".")[0]) < least


def why_unusable(
    driver: str | None, torch: str, cuda: str | None, environment: Mapping[str, str]
) -> tuple[str, str]:
    """Why torch, in this version and built for `cuda` (None: a build for the CPU), finds no GPU on
    a machine that has one, and what to do about it."""
    if cuda is None:
        return f"torch {torch} is a build for the CPU", "install a CUDA build of torch"
    build = f"torch {torch} is a build for CUDA {cuda}"
    if too_old(driver, cuda):
        return (
            f"{build}, which needs driver {least_driver(cuda)} or newer, and the driver is "
            f"{driver}",
            "update the driver, or install a torch that was built for an older CUDA",
        )
    if "SLURM_JOB_ID" in environment and "CUDA_VISIBLE_DEVICES" not in environment:
        return "Slurm allocated no GPU to this job", "request one (--gpus=1)"
    version = f"the driver is {driver}" if driver else "the driver's version is not known"
    return (
        f"{build} and {version}, which are compatible",
        "check that nvidia-smi works and that this process may open /dev/nvidia*",
    )
