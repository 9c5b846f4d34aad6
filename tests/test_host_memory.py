from pathlib import Path

import pytest

from mixit_titan import host_memory
from mixit_titan.errors import ConfigError
from mixit_titan.host_memory import check_host_memory
from mixit_titan.model.accounting import least_bytes
from mixit_titan.model.shapes import FLAVORS
from mixit_titan.model.variants import VARIANTS
from mixit_titan.tasks.addition import Addition
from mixit_titan.tasks.models import check_memory
from mixit_titan.tasks.settings import Run, Settings


def test_a_container_may_have_less_than_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(host_memory, "_ROOT", tmp_path)
    machine = host_memory.host_memory()
    group = tmp_path / "sys/fs/cgroup/job"  # as that of a job of Slurm
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/job\n")
    (group / "memory.max").write_text("max\n")
    assert host_memory.host_memory() == machine > 2**28
    (group / "memory.max").write_text(f"{2**28}\n")
    assert host_memory.host_memory() == 2**28
    check_host_memory(2**28, "")
    with pytest.raises(ConfigError, match=r"at least 1\.0 GiB and this machine has 0\.2 GiB: less"):
        check_host_memory(2**30, "less")


def test_least_bytes_of_a_model_that_was_counted_by_hand() -> None:
    """debug: 1,180,800 weights (as `params` prints), 16 bytes each with gradient and moments."""
    shape = FLAVORS["debug"]
    found = least_bytes(shape, VARIANTS["standard"], rows=2, seq_len=10)
    assert found == 16 * 1_180_800 + 4 * 20 * (512 + 4 * 128)


def test_a_task_that_no_machine_can_hold() -> None:
    run = Run(task=Addition(), settings=Settings(width=2**16, layers=1000, heads=64))
    with pytest.raises(ConfigError, match=r"it needs at least .* lower --batch, --width"):
        check_memory(run)
    check_memory(Run(task=Addition(), settings=Settings()))
