"""One Slurm for all tests of this folder, and one unbroken run that the others are compared to."""

import contextlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from mixit_titan.cli import main
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.runtime.metrics import read_metrics

from .cluster import Cluster

MIXIT = str(shipped_configs()["debug_mixit"])
STEPS = 200
SMALL = [
    *("--model.width", "32", "--model.layers", "2", "--model.hidden", "64"),
    *("--model.vocab", "320", "--model.seq_len", "32", "--training.global_batch_size", "8"),
    *("--training.steps", str(STEPS), "--metrics.log_freq", "1", "--validator.enable", "false"),
    *("--lr_scheduler.warmup_steps", "5", "--checkpoint.keep_latest_k", "3"),
]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if os.geteuid() != 0 or shutil.which("slurmctld") is None:
        pytest.skip("needs root and Slurm: `make test-slurm` installs it")
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    cluster.environment["OMP_NUM_THREADS"] = "1"
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def call(cluster: Cluster, *arguments: str) -> str:
    """What `mixit-titan ARGUMENTS` prints, in this process: importing torch takes some seconds."""
    printed = io.StringIO()
    with (
        mock.patch.dict(os.environ, cluster.environment, clear=True),
        mock.patch("sys.argv", ["mixit-titan", *arguments]),
        contextlib.redirect_stdout(printed),
    ):
        main()
    return printed.getvalue()


def submit(cluster: Cluster, folder: Path, *arguments: str) -> str:
    """Submit debug_mixit on CPU ranks; returns the job's id."""
    words = ["--gpus-per-node", "0", "--dump_folder", str(folder), *arguments]
    first = call(cluster, "submit", MIXIT, *words).splitlines()[0]
    return first.removeprefix("Submitted job ").split(":")[0]


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of two local ranks, without a cluster."""
    folder = tmp_path_factory.mktemp("unbroken")
    overrides = [*SMALL, "--dump_folder", str(folder), "--checkpoint.enable", "false"]
    done = subprocess.run(
        [sys.executable, "-m", "mixit_titan", "train", MIXIT, "--nproc", "2", *overrides],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return losses(folder)


def losses(folder: Path) -> list[float]:
    lines = [line for line in read_metrics(folder / "metrics.jsonl") if "loss" in line]
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    return [line["loss"] for line in lines]


def assert_same_curve(folder: Path, expected: list[float]) -> None:
    ours = losses(folder)
    assert len(ours) == len(expected)
    assert max(abs(a - b) for a, b in zip(ours, expected, strict=True)) < 1e-4


def log(folder: Path) -> str:
    return "".join(file.read_text() for file in sorted((folder / "logs").glob("job_*.out")))
