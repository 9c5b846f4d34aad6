"""A GPU that torch cannot use is found without torch, and never silently ignored."""

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mixit_titan import device, gpus
from mixit_titan.cli import main
from mixit_titan.config.run import load_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.errors import ConfigError, one_sentence
from mixit_titan.gpus import Gpus, find_gpus, hidden, too_old, why_unusable
from mixit_titan.runtime import launch

MIXIT = str(shipped_configs()["debug_mixit"])
VERSION = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
    "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
)


def test_this_suite_sees_no_gpu() -> None:
    assert hidden(os.environ) and not torch.cuda.is_available()


def test_gpus_are_found_by_the_files_of_the_driver(tmp_path: Path) -> None:
    assert find_gpus(tmp_path) == Gpus(0)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / name).touch()
    assert find_gpus(tmp_path) == Gpus(2)
    (tmp_path / "proc/driver/nvidia/gpus/0000:17:00.0").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(VERSION)
    assert find_gpus(tmp_path) == Gpus(2, "550.54.15")


def test_gpus_are_found_by_nvidia_smi_where_there_are_no_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        '#!/bin/sh\ncase "$1" in -L) echo "GPU 0: NVIDIA A100 (UUID: GPU-1)";;\n*) echo 535.104;; '
        "esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert find_gpus(tmp_path) == Gpus(1, "535.104")
    program.write_text("#!/bin/sh\necho no driver is loaded\nexit 9\n")
    assert find_gpus(tmp_path) == Gpus(0)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("", True), ("-1", True), ("NoDevFiles", True), ("0", False), ("GPU-5f", False)],
)
def test_what_hides_all_gpus(value: str, expected: bool) -> None:
    assert hidden({"CUDA_VISIBLE_DEVICES": value}) == expected
    assert not hidden({})


@pytest.mark.parametrize(
    ("driver", "cuda", "expected"),
    [
        ("550.54.15", "13.0", True),
        ("580.65.06", "13.0", False),
        ("525.60", "12.8", False),
        ("515.1", "12.4", True),
        (None, "13.0", False),
        ("550.54", "17.0", False),  # of the future: nobody knows
    ],
)
def test_the_driver_that_a_build_needs(driver: str | None, cuda: str, expected: bool) -> None:
    assert too_old(driver, cuda) == expected


@pytest.mark.parametrize(
    ("driver", "cuda", "environment", "why", "advice"),
    [
        ("580.1", None, {}, "torch 9 is a build for the CPU", "install a CUDA build"),
        (
            "550.54",
            "13.0",
            {},
            "needs driver 580 or newer, and the driver is 550.54",
            "update the driver",
        ),
        ("580.1", "13.0", {"SLURM_JOB_ID": "1"}, "Slurm allocated no GPU to this job", "--gpus=1"),
        ("580.1", "13.0", {}, "which are compatible", "may open /dev/nvidia*"),
    ],
)
def test_why_torch_finds_no_gpu(
    driver: str, cuda: str | None, environment: dict[str, str], why: str, advice: str
) -> None:
    found = why_unusable(driver, "9", cuda, environment)
    assert why in found[0] and advice in found[1]


@pytest.fixture
def old_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose GPU torch cannot use."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(device, "find_gpus", lambda: Gpus(8, "550.54.15"))
    monkeypatch.setattr(torch.version, "cuda", "13.0")


@pytest.mark.parametrize(
    "words",
    [
        f"train {MIXIT} --dump_folder OUT",
        f"train {MIXIT} --device gpu --dump_folder OUT",
        "task addition --out OUT",
        "sweep addition --out OUT",
        "suite state --only parity --out OUT",
        "bench --out OUT",
        "demo --out OUT",
        "reproduce --out OUT",
        "generate RUN --prompt x",
        "analyze attention RUN --out OUT",
    ],
)
def test_no_command_takes_the_cpu_in_place_of_a_gpu(
    old_driver: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    words: str,
) -> None:
    out = tmp_path / "out"
    line = words.replace("OUT", str(out)).replace("RUN", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["mixit-titan", *line.split()])
    with pytest.raises(SystemExit) as exit_:
        main()
    error = capsys.readouterr().err
    assert exit_.value.code == 2 and error.count("\n") == 1
    assert "needs driver 580 or newer, and the driver is 550.54.15" in error
    assert "--device cpu" in error and "CUDA_VISIBLE_DEVICES=" in error
    assert not out.exists()


def test_the_cpu_can_be_meant(old_driver: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError):
        device.check_device()
    load_run(MIXIT, ["--device", "cpu"], world_size=1)
    with pytest.raises(ConfigError, match="torch cannot use the GPU"):
        load_run(MIXIT, [], world_size=1)
    load_run(MIXIT, [], world_size=1, on_gpus=True)  # `submit`: the ranks are elsewhere
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    load_run(MIXIT, [], world_size=1)


def test_a_run_on_the_cpu_hides_the_gpus_from_all_ranks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for command, run in (("train", "config.run.run_train"), ("bench", "bench.command.run_bench")):
        seen = []
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setattr(
            f"mixit_titan.{run}",
            lambda *words, seen=seen: seen.append(os.environ.get("CUDA_VISIBLE_DEVICES")),
        )
        for words in ([], ["--device", "cpu"]):
            monkeypatch.setattr("sys.argv", ["mixit-titan", command, MIXIT, *words])
            main()
        assert seen == [None, ""]


def test_a_cpu_run_is_refused_where_its_ranks_have_gpus() -> None:
    with pytest.raises(ConfigError, match="--gpus-per-node 0"):
        load_run(MIXIT, ["--device", "cpu"], world_size=1, on_gpus=True)


@pytest.fixture
def some_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchtitan as on a machine with four GPUs, which are the `meta` device here: its own module
    anew, without what device.py has put in the place of its functions."""
    spec = importlib.util.find_spec("torchtitan.tools.utils")
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    fresh.device_type, fresh.device_module = "meta", SimpleNamespace(device_count=lambda: 4)
    monkeypatch.setattr(device, "utils", fresh)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_launcher_it_is_the_first_gpu(
    some_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert device.local_device() == torch.device("meta", 0)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert device.local_device() == torch.device("meta", 3)


def test_ranks_on_gpus_need_to_know_theirs(
    some_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(ConfigError, match="but not LOCAL_RANK"):
        launch.ranks_from_environment()
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert launch.ranks_from_environment() == 8


def test_ranks_on_gpus_need_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    launch.launch(1, [], lambda: None)  # on a CPU nobody asks for it
    monkeypatch.setattr(device.utils, "device_type", "cuda")
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: False)
    for start in (lambda: launch.launch(1, [], lambda: None), launch.ranks_from_environment):
        with pytest.raises(ConfigError, match="has no NCCL"):
            start()


@pytest.mark.parametrize("given", [None, "max_split_size_mb:64"])
def test_segments_of_gpu_memory_grow(monkeypatch: pytest.MonkeyPatch, given: str | None) -> None:
    """From the import on, and so before anything asks CUDA; unless the environment says what is
    wanted."""
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    if given:
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", given)
    monkeypatch.setattr(device.utils, "get_peak_flops", device.utils.get_peak_flops)
    spec = importlib.util.find_spec("mixit_titan.device")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert os.environ.get("PYTORCH_ALLOC_CONF") == (None if given else "expandable_segments:True")
    assert not torch.cuda.is_initialized()


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """torch on a machine with GPUs of these names: the test fills the list."""
    names: list[str] = []
    monkeypatch.setattr(device.utils, "device_type", "cuda")
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(names))
    monkeypatch.setattr(torch.cuda, "get_device_name", names.__getitem__)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_STEP_ID"):
        monkeypatch.delenv(name, raising=False)
    return names


H100, T400, SLICE = "NVIDIA H100 80GB HBM3", "NVIDIA T400 4GB", "NVIDIA H100 80GB HBM3 MIG 3g.40gb"


def test_one_rank_per_gpu(cards: list[str]) -> None:
    cards += 8 * [H100]
    assert launch.local_ranks(None) == 8 and launch.local_ranks(2) == 2
    with pytest.raises(ConfigError, match="--nproc is 9, but this machine has 8 x NVIDIA H100"):
        launch.local_ranks(9)


def test_gpus_of_several_kinds_are_one_sentence(cards: list[str]) -> None:
    cards += [*7 * [H100], T400]
    with pytest.raises(ConfigError, match=f"has 7 x {H100} and 1 x {T400}, and all ranks would"):
        launch.local_ranks(None)
    assert launch.local_ranks(7) == 7  # who says how many has looked


def test_a_slice_of_a_gpu_is_for_one_rank(cards: list[str]) -> None:
    cards += [SLICE]
    assert launch.local_ranks(None) == 1
    with pytest.raises(ConfigError, match=r"has 1 x .* 3g\.40gb \(MIG slices, of which"):
        launch.local_ranks(2)


@pytest.mark.parametrize(
    "started",
    [
        {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"},  # torchrun
        {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"},  # somebody's own launcher
        {  # srun with --gpus-per-task 1
            **{"SLURM_STEP_ID": "0", "SLURM_JOB_ID": "1", "SLURM_STEP_NUM_TASKS": "2"},
            **{"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_NODELIST": "n1"},
            **{"SLURM_STEP_TASKS_PER_NODE": "2(x4)"},
        },
    ],
)
def test_more_ranks_than_gpus_are_one_sentence(
    cards: list[str], monkeypatch: pytest.MonkeyPatch, started: dict[str, str]
) -> None:
    """Also on the first rank, which has a GPU and is the one that speaks."""
    for name, value in started.items():
        monkeypatch.setenv(name, value)
    cards += [H100]
    said = f"this node has 2 ranks, and each of them sees 1 x {H100}: start fewer"
    with pytest.raises(ConfigError, match=said):
        launch.ranks_from_environment()
    cards += [H100]
    assert launch.ranks_from_environment() == 2


def test_a_library_that_is_missing_is_one_sentence(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as exit_, one_sentence():
        raise ImportError("libnccl.so.2: cannot open shared object file: No such file or directory")
    assert exit_.value.code == 2
    error = capsys.readouterr().err
    assert "cannot be found (libnccl.so.2): reinstall torch" in error and error.count("\n") == 1
    with pytest.raises(ImportError), one_sentence():
        raise ImportError("No module named 'torch'")  # that is a bug, or no installation at all


def test_a_missing_nvidia_smi_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.nvidia_smi("-L") is None
