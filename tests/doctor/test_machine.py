"""What doctor says about cores, memory, limits and the disk."""

import dataclasses
import errno
import os
from pathlib import Path

import pytest

from mixit_titan.doctor import disk
from mixit_titan.doctor.check import Check
from mixit_titan.doctor.disk import Disk, check_disk, read_disk
from mixit_titan.doctor.machine import GIB, UNLIMITED, Limit, Machine, machine, read_machine

NODE = Machine(
    cores=96,
    all_cores=96,
    quota=None,
    numa_nodes=2,
    memory=2000 * GIB,
    available=1900 * GIB,
    memory_limit=None,
    shared_memory=1000 * GIB,
    open_files=Limit(65536, 65536),
    locked_memory=Limit(UNLIMITED, UNLIMITED),
    stack=Limit(8 * 2**20, UNLIMITED),
    processes=Limit(UNLIMITED, UNLIMITED),
    infiniband=True,
    gpus=8,
)


def found(**changes: object) -> dict[str, Check]:
    return {check.name: check for check in machine(dataclasses.replace(NODE, **changes))}


def test_a_good_node() -> None:
    checks = found()
    assert {check.state for check in checks.values()} == {"ok"}
    assert checks["cores"].fact == "96 of 96, 2 NUMA nodes"
    assert checks["memory"].fact == "1900 of 2000 GiB free"


@pytest.mark.parametrize(
    ("name", "changes", "advice"),
    [
        ("cores", {"cores": 8}, "--cpus-per-gpu"),
        ("cores", {"quota": 16.0}, "--cpus-per-gpu"),
        ("memory", {"available": 3 * GIB}, "less than 4 GiB"),
        ("memory", {"memory_limit": 64 * GIB}, "--mem=0"),
        ("/dev/shm", {"shared_memory": 64 * 2**20}, "--shm-size"),
        ("/dev/shm", {"shared_memory": None}, "--shm-size"),
        ("ulimit -n (open files)", {"open_files": Limit(1024, 2**20)}, "ulimit -n 65536"),
        ("ulimit -n (open files)", {"open_files": Limit(1024, 4096)}, "hard limit is 4,096: ask"),
        ("ulimit -u (processes)", {"processes": Limit(1000, UNLIMITED)}, "ulimit -u 65536"),
        ("ulimit -s (stack)", {"stack": Limit(2**20, UNLIMITED)}, "ulimit -s 8192"),
        ("ulimit -s (stack)", {"stack": Limit(UNLIMITED, UNLIMITED)}, "threads get only 2 MiB"),
        ("ulimit -l (locked memory)", {"locked_memory": Limit(2**23, 2**23)}, "unlimited"),
    ],
)
def test_too_little(name: str, changes: dict[str, object], advice: str) -> None:
    checks = found(**changes)
    assert checks[name].state == "warning" and advice in checks[name].advice
    assert {check.state for other, check in checks.items() if other != name} == {"ok"}


def test_a_laptop_needs_no_cluster() -> None:
    changes = {"gpus": 0, "cores": 2, "available": 5 * GIB, "infiniband": False}
    changes |= {"locked_memory": Limit(2**16, 2**16), "stack": Limit(UNLIMITED, UNLIMITED)}
    assert {check.state for check in found(**changes).values()} == {"ok"}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_facts_are_read_from_the_system(tmp_path: Path) -> None:
    write(tmp_path / "proc/meminfo", "MemTotal: 2097152 kB\nMemAvailable: 1048576 kB\n")
    write(tmp_path / "proc/self/cgroup", "0::/system.slice/job_7/step_0\n")
    cgroup = tmp_path / "sys/fs/cgroup/system.slice"
    write(cgroup / "memory.max", "max\n")
    write(cgroup / "job_7/memory.max", f"{64 * GIB}\n")
    write(cgroup / "job_7/step_0/memory.max", f"{512 * GIB}\n")  # the one above is smaller
    write(cgroup / "job_7/step_0/cpu.max", "400000 100000\n")
    (tmp_path / "sys/devices/system/node/node0").mkdir(parents=True)
    (tmp_path / "sys/devices/system/node/node1").mkdir()
    (tmp_path / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    facts = read_machine(8, tmp_path)
    assert (facts.memory, facts.available) == (2 * GIB, GIB)
    assert facts.memory_limit == 64 * GIB and facts.quota == 4.0
    assert facts.numa_nodes == 2 and facts.infiniband and facts.shared_memory is None


def test_the_first_version_of_cgroups(tmp_path: Path) -> None:
    write(tmp_path / "sys/fs/cgroup/memory/memory.limit_in_bytes", f"{8 * GIB}\n")
    write(tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n")
    write(tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    facts = read_machine(0, tmp_path)
    assert facts.memory_limit == 8 * GIB and facts.quota == 1.5


def test_the_disk_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    facts = read_disk(tmp_path / "not" / "made" / "yet")
    assert facts.error is None and facts.speed > 0 and facts.free > 0
    assert not list(tmp_path.iterdir())


def test_a_slow_disk_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock = iter(range(0, 10000, 4))  # 4 s for a piece of 4 MiB
    monkeypatch.setattr(disk.time, "perf_counter", lambda: next(clock))
    facts = read_disk(tmp_path)
    assert 0 < facts.speed < 2 * 2**20
    check = check_disk(dataclasses.replace(facts, free=10**12))
    assert check.state == "warning" and "async" in check.advice


@pytest.mark.parametrize(
    ("facts", "state", "advice"),
    [
        (Disk("runs", free=10**12, speed=10**9), "ok", ""),
        (Disk("runs", free=10**12, speed=10**7), "warning", "another disk"),
        (Disk("runs", free=10**9, speed=10**9), "warning", "make room"),
        (Disk("runs", error="Permission denied"), "wrong", "name a writable folder"),
    ],
)
def test_disks(facts: Disk, state: str, advice: str) -> None:
    check = check_disk(facts)
    assert check.state == state and advice in check.advice


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk.os, "write", full)
    assert read_disk(tmp_path).error == "No space left on device"
