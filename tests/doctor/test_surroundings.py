"""What doctor says about Slurm and environment variables."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mixit_titan.doctor.check import Check
from mixit_titan.doctor.surroundings import (
    Slurm,
    check_environment,
    check_hub,
    check_slurm,
    read_slurm,
)

JOB = {
    "SLURM_JOB_ID": "1234",
    "SLURM_JOB_NUM_NODES": "4",
    "SLURM_JOB_NODELIST": "secret[1-4]",
    "SLURM_GPUS_ON_NODE": "8",
    "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7",
}
GOOD = Slurm(sbatch=True, version="23.11.4", answers=True, usable_gpus=8, environment=JOB)


def found(**changes: object) -> dict[str, Check]:
    return {check.name: check for check in check_slurm(dataclasses.replace(GOOD, **changes))}


def test_inside_a_job() -> None:
    checks = found()
    assert {check.state for check in checks.values()} == {"ok"}
    assert checks["slurm"].fact == "23.11.4, the controller answers"
    expected = "job 1234, nodes: 4, GPUs on this one: 8, CUDA_VISIBLE_DEVICES 0,1,2,3,4,5,6,7"
    assert checks["slurm job"].fact == expected
    assert not any("secret" in check.fact for check in checks.values())


def test_a_job_without_gpus() -> None:
    job = {"SLURM_JOB_ID": "1234"}
    check = found(environment=job, usable_gpus=0)["slurm job"]
    assert check.state == "warning" and "--gpus" in check.advice
    assert "GPUs on this one: 0, CUDA_VISIBLE_DEVICES not set" in check.fact


def test_a_job_whose_gpus_torch_cannot_use() -> None:
    check = found(usable_gpus=0)["slurm job"]
    assert check.state == "warning" and "torch can use 0" in check.advice


def test_gpus_that_only_a_list_names() -> None:
    job = {"SLURM_JOB_ID": "1", "SLURM_JOB_GPUS": "0,2-4", "CUDA_VISIBLE_DEVICES": "GPU-ab12,1"}
    check = found(environment=job, usable_gpus=4)["slurm job"]
    assert check.state == "ok"
    assert "GPUs on this one: 4, CUDA_VISIBLE_DEVICES GPU-...,1" in check.fact


def test_outside_of_a_cluster() -> None:
    checks = found(sbatch=False, version=None, answers=False, environment={})
    assert [*checks] == ["slurm"] and checks["slurm"].state == "ok"


def test_a_controller_that_is_away() -> None:
    check = found(answers=False, environment={})["slurm"]
    assert check.state == "warning" and "sinfo" in check.advice


def test_slurm_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, text in {"sbatch": "echo slurm 22.05.8", "scontrol": "exit 1"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    facts = read_slurm(0)
    assert facts.sbatch and facts.version == "22.05.8" and not facts.answers
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho PartitionName=gpu\n")
    assert read_slurm(0).answers


def test_variables_that_change_results_or_speed() -> None:
    assert check_environment({"HOME": "/root", "PATH": "/bin"}).state == "ok"
    harmless = {"OMP_NUM_THREADS": "4", "NCCL_DEBUG": "WARN", "CUDA_LAUNCH_BLOCKING": "0"}
    check = check_environment(harmless | {"CUDA_VISIBLE_DEVICES": "MIG-12-ab,GPU-cd"})
    assert check.state == "ok" and "NCCL_DEBUG=WARN, OMP_NUM_THREADS=4" in check.fact
    assert "CUDA_VISIBLE_DEVICES=MIG-...,GPU-..." in check.fact
    assert "CUDA_VISIBLE_DEVICES is empty" in check_environment({"CUDA_VISIBLE_DEVICES": ""}).fact
    check = check_environment({"CUDA_LAUNCH_BLOCKING": "1", "NCCL_P2P_DISABLE": "1"})
    assert check.state == "warning"
    assert "CUDA_LAUNCH_BLOCKING makes" in check.advice and "NCCL_P2P_DISABLE" in check.advice
    assert check_environment({"NVIDIA_TF32_OVERRIDE": "0"}).state == "warning"


def test_what_our_own_import_sets_is_not_shown_as_the_users() -> None:
    code = (
        "import os; os.environ.pop('PYTORCH_ALLOC_CONF', None)\n"
        "import mixit_titan.device; from mixit_titan.doctor.surroundings import check_environment\n"
        "print('PYTORCH_ALLOC_CONF' in os.environ, check_environment(os.environ).fact)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("True ") and "PYTORCH_ALLOC_CONF" not in done.stdout
    others = check_environment({"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"})
    assert others.fact == "PYTORCH_ALLOC_CONF=max_split_size_mb:64"


def test_secrets_are_not_shown() -> None:
    fact = check_hub({"WANDB_API_KEY": "abc", "HF_TOKEN": "", "WANDB_MODE": "offline"}).fact
    assert fact == "WANDB_MODE=offline, WANDB_API_KEY is set, HF_TOKEN is not set"
