"""Slurm, and the environment variables that change results or speed."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mixit_titan.doctor.check import Check, anonymous, judge
from mixit_titan.gpus import OUR_ALLOCATOR

_SECONDS = 20

_SHOWN = re.compile(
    r"(OMP|MKL|NCCL|GLOO|TORCH|TORCHINDUCTOR|TORCHDYNAMO|PYTORCH|TRITON|CUDA|CUBLAS|NVIDIA|KMP)_\w+"
)
_HUB = ("WANDB_MODE", "WANDB_PROJECT", "WANDB_ENTITY", "WANDB_DIR", "HF_HUB_OFFLINE", "HF_HOME")
_SECRET = ("WANDB_API_KEY", "HF_TOKEN")

_HARMFUL = {
    "CUDA_LAUNCH_BLOCKING": "makes every kernel wait for the previous one",
    "NCCL_P2P_DISABLE": "prevents GPUs from communicating directly",
    "NCCL_SHM_DISABLE": "prevents ranks from communicating through shared memory",
    "NCCL_IB_DISABLE": "prevents nodes from communicating over InfiniBand",
    "TORCH_COMPILE_DISABLE": "turns torch.compile off",
    "TORCHDYNAMO_DISABLE": "turns torch.compile off",
    "TRITON_INTERPRET": "runs Triton's kernels in Python, very slowly",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "allocates memory from CUDA for every tensor",
    "NVIDIA_TF32_OVERRIDE": "changes the precision of matrix products behind torch's back",
}
"""What these variables do where they are set. A value of 0 counts as unset, except for the last
one."""


@dataclass(frozen=True)
class Slurm:
    """What Slurm says."""

    sbatch: bool
    version: str | None = None
    answers: bool = False
    usable_gpus: int = 0
    """The number of GPUs that torch can use."""
    environment: Mapping[str, str] = field(default_factory=dict)


def read_slurm(usable_gpus: int) -> Slurm:
    """Ask Slurm, if it is installed."""
    sbatch = shutil.which("sbatch") is not None
    shown = _ask("sbatch", "--version") if sbatch else None
    return Slurm(
        sbatch=sbatch,
        version=shown.removeprefix("slurm ").strip() if shown else None,
        answers=sbatch and _ask("scontrol", "--oneliner", "show", "partition") is not None,
        usable_gpus=usable_gpus,
        environment=dict(os.environ),
    )


def _ask(*words: str) -> str | None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def check_slurm(facts: Slurm) -> Iterator[Check]:
    """Whether Slurm answers, and what this job was given."""
    if not facts.sbatch:
        yield judge("slurm", "there is no sbatch: `submit` works on a cluster's nodes only")
    else:
        advice = "the controller is down, or SLURM_CONF is wrong: try `sinfo`"
        fact = f"{facts.version or 'its version is unknown'}, the controller "
        fact += "answers" if facts.answers else "does not answer"
        yield judge("slurm", fact, warning=None if facts.answers else advice)
    if "SLURM_JOB_ID" in facts.environment:
        yield _check_job(facts)


def _check_job(facts: Slurm) -> Check:
    """The resources of this job, without the names of its nodes."""
    get = facts.environment.get
    visible = get("CUDA_VISIBLE_DEVICES")
    given = get("SLURM_GPUS_ON_NODE") or _count(get("SLURM_STEP_GPUS") or get("SLURM_JOB_GPUS"))
    fact = f"job {get('SLURM_JOB_ID')}, nodes: {get('SLURM_JOB_NUM_NODES', '1')}, "
    fact += f"GPUs on this one: {given or 0}, "
    fact += f"CUDA_VISIBLE_DEVICES {_devices(visible) if visible is not None else 'not set'}"
    advice = None
    if given and int(given) != facts.usable_gpus:
        advice = f"torch can use {facts.usable_gpus} of them: see `device` and `driver` above"
    elif not given:
        advice = "no GPU was requested (--gpus-per-node, --gpus): fine if the CPU is intended"
    return judge("slurm job", fact, warning=advice)


def _count(names: str | None) -> str:
    """The number of devices in a list: `0,1,4-7` -> 6."""
    ranges = [part.partition("-") for part in (names or "").split(",") if part]
    numbers = [(int(a), int(b or a)) for a, _, b in ranges if a.isdecimal()]
    return str(sum(last - first + 1 for first, last in numbers)) if numbers else ""


def _devices(value: str) -> str:
    """CUDA_VISIBLE_DEVICES without UUIDs, which identify the machine."""
    return "is empty" if not value else re.sub(r"\b(GPU|MIG)-[\w/-]+", r"\1-...", value)


def check_environment(environment: Mapping[str, str]) -> Check:
    """One line with all variables that are set, except those that this project sets by itself."""
    environment = dict(environment.items() - OUR_ALLOCATOR.items())
    names = sorted(name for name in environment if _SHOWN.fullmatch(name))
    values = {name: anonymous(_devices(environment[name])) for name in names}
    fact = ", ".join(f"{n} {v}" if v == "is empty" else f"{n}={v}" for n, v in values.items())
    bad = [
        f"{name} {does}"
        for name, does in _HARMFUL.items()
        if environment.get(name, "") not in ("", "0")
        or (name == "NVIDIA_TF32_OVERRIDE" and name in environment)
    ]
    advice = f"unset what is not intended: {'; '.join(bad)}" if bad else None
    return judge("environment", fact or "nothing that changes results or speed", warning=advice)


def check_hub(environment: Mapping[str, str]) -> Check:
    """The variables of wandb and the Hugging Face hub, without asking either."""
    shown = [f"{n}={anonymous(environment[n])}" for n in _HUB if environment.get(n)]
    shown += [f"{n} {'is set' if environment.get(n) else 'is not set'}" for n in _SECRET]
    return judge("wandb and hub", ", ".join(shown))
