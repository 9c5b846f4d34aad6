"""What ranks are started with (on GPUs, seen from a machine without one), and what is said when
they end."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from torch.distributed import run as torchrun

from mixit_titan.config.run import load_run
from mixit_titan.config.shipped import shipped_configs, shipped_jobs
from mixit_titan.runtime import launch
from tests.forkserver import Forkserver

MIXIT = str(shipped_configs()["debug_mixit"])


def write_numactl(folder: Path) -> Path:
    folder.mkdir()
    file = folder / "numactl"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return folder


@pytest.mark.parametrize("installed", [True, False])
def test_ranks_are_bound_to_the_cores_near_their_gpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, installed: bool
) -> None:
    """torchrun binds by numactl, and fails where there is none."""
    started = []
    monkeypatch.setenv("PATH", str(write_numactl(tmp_path / "bin")) if installed else "")
    monkeypatch.setattr(launch, "has_gpu", lambda: True)
    monkeypatch.setattr(torchrun, "run", started.append)
    launch.launch(8, ["train", MIXIT], lambda: None)
    (options,) = started
    assert str(options.numa_binding) == ("node" if installed else "None")
    assert options.nproc_per_node == "8" and options.training_script == "mixit_titan"


@pytest.mark.parametrize(("gpus", "installed"), [(8, True), (8, False), (0, True)])
def test_so_are_those_of_the_job_script(tmp_path: Path, gpus: int, installed: bool) -> None:
    script = shipped_jobs()["pretrain"].read_text()
    lines = re.search(r"^numa=\(\).*?^fi$", script, re.DOTALL | re.MULTILINE)[0]
    assert '${numa[@]+"${numa[@]}"}' in script.partition("torch.distributed.run")[2]
    path = str(write_numactl(tmp_path / "bin")) if installed else ""
    said = subprocess.run(
        ["/bin/bash", "-uc", f'gpus={gpus}\n{lines}\necho ${{numa[@]+"${{numa[@]}}"}}'],
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == ("--numa-binding=node" if gpus and installed else "")


def test_collectives_wait_for_a_validation_a_compilation_and_a_save() -> None:
    """torchtitan would end a run whose ranks wait for 300 s before the first step is done, or for
    100 s later."""
    comm = load_run(MIXIT, [], world_size=8, on_gpus=True).comm
    assert comm.init_timeout_seconds >= 1800 and comm.train_timeout_seconds >= 1800


def launch_two(*words: str) -> None:
    sys.exit(launch.launch(2, [*words], lambda: None))


def test_a_mistake_is_all_that_two_ranks_say(forkserver: Forkserver) -> None:
    with forkserver.start(launch_two, "trian") as launcher:
        assert launcher.wait(120) == 2
        said = launcher.output().splitlines()
    assert len(said) == 1 and said[0].startswith("mixit-titan: unknown command 'trian'")


DIES = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def test_that_a_rank_was_killed_is_said_by_torchrun(
    forkserver: Forkserver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else could."""
    package = tmp_path / "mixit_titan"
    package.mkdir()
    (package / "__init__.py").touch()  # without it, an installed mixit_titan would come first
    (package / "__main__.py").write_text(DIES)
    monkeypatch.chdir(tmp_path)  # where `python -m` looks first
    with forkserver.start(launch_two) as launcher:
        assert launcher.wait(120) == 128 + 9
        assert "failed (exitcode: -9) local_rank: " in launcher.output()
