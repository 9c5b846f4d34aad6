"""Cores, memory and limits of this process."""

import os
import re
import resource
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mixit_titan.doctor.check import Check, judge
from mixit_titan.host_memory import cgroup_values, memory_limit, text_of

GIB = 2**30
UNLIMITED = resource.RLIM_INFINITY

_CORES_PER_GPU = 4  # the rank itself, a loader, the threads of NCCL and CUDA
_MEMORY_PER_GPU = 16 * GIB  # rule of thumb: process, compilation, an asynchronous save
_OPEN_FILES = 4096  # shards, sockets of all ranks, one descriptor per tensor from a loader
_PROCESSES = 4096  # threads count too: OpenMP, NCCL and compilers start one per core and rank
_STACK = 8 * 2**20  # the usual size, with which the recursion of NCCL and LLVM is tested
_SHARED_MEMORY = GIB  # NVIDIA's own advice for containers: docker run --shm-size=1g


@dataclass(frozen=True)
class Limit:
    """A limit in bytes or as a number; -1 (RLIM_INFINITY) means none."""

    soft: int
    hard: int

    def below(self, least: int) -> bool:
        """Whether the soft limit is lower than `least`."""
        return self.soft != UNLIMITED and self.soft < least


@dataclass(frozen=True)
class Machine:
    """What the system says about cores, memory and limits."""

    cores: int
    """The cores that this process may run on."""
    all_cores: int
    quota: float | None
    """The CPU time that its cgroup gets, in cores."""
    numa_nodes: int
    memory: int
    available: int
    memory_limit: int | None
    """The limit of its cgroup."""
    shared_memory: int | None
    open_files: Limit
    locked_memory: Limit
    stack: Limit
    processes: Limit
    infiniband: bool
    gpus: int


def read_machine(gpus: int, root: Path = Path("/")) -> Machine:
    """Ask the system."""
    memory = dict(
        re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", text_of(root / "proc/meminfo"), re.M)
    )
    shm = root / "dev/shm"
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        all_cores=os.cpu_count() or 1,
        quota=_cpu_quota(root),
        numa_nodes=len([*(root / "sys/devices/system/node").glob("node[0-9]*")]) or 1,
        memory=int(memory.get("MemTotal", 0)) * 1024,
        available=int(memory.get("MemAvailable", 0)) * 1024,
        memory_limit=memory_limit(root),
        shared_memory=shutil.disk_usage(shm).total if shm.is_dir() else None,
        open_files=Limit(*resource.getrlimit(resource.RLIMIT_NOFILE)),
        locked_memory=Limit(*resource.getrlimit(resource.RLIMIT_MEMLOCK)),
        stack=Limit(*resource.getrlimit(resource.RLIMIT_STACK)),
        processes=Limit(*resource.getrlimit(resource.RLIMIT_NPROC)),
        infiniband=any((root / "sys/class/infiniband").glob("*")),
        gpus=gpus,
    )


def _cpu_quota(root: Path) -> float | None:
    values = cgroup_values(root, "cpu.max")
    quotas = [int(v[0]) / int(v[1]) for v in values if len(v) == 2 and v[0].isdecimal()]
    version_1 = root / "sys/fs/cgroup/cpu"
    quota, period = (
        text_of(version_1 / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")
    )
    if quota.isdecimal() and period.isdecimal():  # -1: none
        quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def check_cores(facts: Machine) -> Check:
    """Whether there are enough cores for the GPUs."""
    fact = f"{facts.cores} of {facts.all_cores}"
    usable = float(facts.cores)
    if facts.quota is not None:
        usable = min(usable, facts.quota)
        fact += f", limited to {facts.quota:g} by the cgroup"
    fact += f", {facts.numa_nodes} NUMA node{'s' if facts.numa_nodes > 1 else ''}"
    few = usable < _CORES_PER_GPU * facts.gpus
    advice = f"{facts.gpus} GPUs need {_CORES_PER_GPU} cores each, or they wait for the CPU: "
    advice += "request more (Slurm: --cpus-per-gpu, --exclusive)"
    return judge("cores", fact, warning=advice if few else None)


def check_memory(facts: Machine) -> Check:
    """Whether there is enough memory for the GPUs."""
    fact = f"{facts.available / GIB:.0f} of {facts.memory / GIB:.0f} GiB free"
    usable = facts.available
    if facts.memory_limit is not None:
        usable = min(usable, facts.memory_limit)
        fact += f", of which the cgroup allows {facts.memory_limit / GIB:.0f}"
    advice = None
    if usable < 4 * GIB:
        advice = "less than 4 GiB: a compilation or a checkpoint may be killed"
    elif usable < _MEMORY_PER_GPU * facts.gpus:
        each = _MEMORY_PER_GPU // GIB
        advice = f"less than {each} GiB per GPU: request more (Slurm: --mem=0 for all), or ranks "
        advice += "may be killed when they compile or save"
    return judge("memory", fact, warning=advice)


def check_shared_memory(facts: Machine) -> Check:
    """Whether /dev/shm is large enough."""
    size = facts.shared_memory
    fact = "there is no /dev/shm" if size is None else f"{size / GIB:.2g} GiB"
    advice = "loaders and NCCL pass data through it: docker run --shm-size=8g, or --ipc=host"
    return judge("/dev/shm", fact, warning=advice if (size or 0) < _SHARED_MEMORY else None)


def check_limits(facts: Machine) -> Iterator[Check]:
    """The limits of this process (ulimit)."""
    files = facts.open_files
    yield judge(
        "ulimit -n (open files)",
        _shown(files),
        warning=_raise("-n", files, 65536) if files.below(_OPEN_FILES) else None,
    )
    processes = facts.processes
    yield judge(
        "ulimit -u (processes)",
        _shown(processes),
        warning=_raise("-u", processes, 65536) if processes.below(_PROCESSES) else None,
    )
    yield _check_stack(facts)
    yield _check_locked(facts)


def _check_stack(facts: Machine) -> Check:
    advice = None
    if facts.stack.below(_STACK):
        advice = "compilers recurse deeply: ulimit -s 8192"
    elif facts.stack.soft == UNLIMITED and facts.gpus:
        # glibc then gives threads 2 MiB, and NCCL's search for rings may need more.
        advice = "without a limit, threads get only 2 MiB each: ulimit -s 8192"
    return judge("ulimit -s (stack)", _shown(facts.stack, 1024, " KiB"), warning=advice)


def _check_locked(facts: Machine) -> Check:
    """Only buffers for InfiniBand are locked; what CUDA pins does not count."""
    small = facts.infiniband and facts.locked_memory.soft != UNLIMITED
    advice = "NCCL locks memory for InfiniBand and fails at start: ulimit -l unlimited (Slurm: "
    advice += "LimitMEMLOCK of slurmd; docker: --ulimit memlock=-1)"
    fact = _shown(facts.locked_memory, 1024, " KiB")
    fact += ", with InfiniBand" if facts.infiniband else ", no InfiniBand"
    return judge("ulimit -l (locked memory)", fact, warning=advice if small else None)


def _shown(limit: Limit, unit: int = 1, name: str = "") -> str:
    return "unlimited" if limit.soft == UNLIMITED else f"{limit.soft // unit:,}{name}"


def _raise(flag: str, limit: Limit, to: int) -> str:
    if limit.hard == UNLIMITED or limit.hard >= to:
        return f"ulimit {flag} {to} before the run"
    return f"the hard limit is {limit.hard:,}: ask the administrator for {to:,}"


def machine(facts: Machine) -> Iterator[Check]:
    """All checks of cores, memory and limits."""
    yield check_cores(facts)
    yield check_memory(facts)
    yield check_shared_memory(facts)
    yield from check_limits(facts)
