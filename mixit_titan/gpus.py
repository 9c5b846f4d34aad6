"""What the system itself says of its NVIDIA GPUs and their driver: without torch, which may be
unable to use them."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LEAST_DRIVER = {11: 450, 12: 525, 13: 580}
"""CUDA's major version -> the oldest driver that any of its builds runs with. By NVIDIA's table
(https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html)."""

OUR_ALLOCATOR = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
"""What device.py sets in the environment of every command that does not have it."""

_SECONDS = 30  # nvidia-smi wakes up GPUs that sleep, one after the other


@dataclass(frozen=True)
class Gpus:
    """The GPUs of this machine, whoever may use them."""

    count: int
    driver: str | None = None


def find_gpus(root: Path = Path("/")) -> Gpus:
    """By the files that the driver makes; by nvidia-smi where it makes none, as in WSL."""
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
    """What it prints; None where there is none, or where it fails."""
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
    """CUDA_VISIBLE_DEVICES names no GPU: whoever set it so means the CPU. CUDA takes the names up
    to the first that is none: "", -1 and Slurm's NoDevFiles hide all."""
    named = environment.get("CUDA_VISIBLE_DEVICES")
    return named is not None and not re.match(r"\s*(\d|GPU-|MIG-)", named)


def hide_gpus() -> None:
    """From this process, if it has not imported torch yet, and from those that it starts."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def least_driver(cuda: str) -> int | None:
    """`cuda` is torch.version.cuda, such as 13.0. None: nobody knows."""
    return LEAST_DRIVER.get(int(cuda.split(".")[0]))


def too_old(driver: str | None, cuda: str) -> bool:
    least = least_driver(cuda)
    return driver is not None and least is not None and int(driver.split(".")[0]) < least


def why_unusable(
    driver: str | None, torch: str, cuda: str | None, environment: Mapping[str, str]
) -> tuple[str, str]:
    """Why torch of this version, a build for `cuda` (None: for the CPU), finds no GPU where there
    is one; and what to do."""
    if cuda is None:
        return f"torch {torch} is a build for the CPU", "install a CUDA build of torch"
    build = f"torch {torch} is a build for CUDA {cuda}"
    if too_old(driver, cuda):
        return (
            f"{build}, which needs driver {least_driver(cuda)} or newer, and it is {driver}",
            "update the driver, or install a torch that was built for an older CUDA",
        )
    if "SLURM_JOB_ID" in environment and "CUDA_VISIBLE_DEVICES" not in environment:
        return "Slurm gave this job none", "ask for one (--gpus=1)"
    version = f"the driver is {driver}" if driver else "the driver's version is not known"
    return (
        f"{build} and {version}, which fit each other",
        "see whether nvidia-smi works, and whether this process may open /dev/nvidia*",
    )
