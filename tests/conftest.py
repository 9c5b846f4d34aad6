"""What all tests share. Importing this file is cheap, because the process that only hands tests out
to workers imports it too, and so does a folder that needs none of it."""

import os
import sys
import tempfile
from pathlib import Path

# oneDNN reads this when torch is imported. Some sandboxes advertise AMX but do not let it run: a
# bfloat16 product would kill the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# OpenMP reads this, too. Models this small gain nothing from more threads, and workers must not
# compete for cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers inherit it
    # The suite is written for a CPU, with widths that no GPU kernel supports. Torch, and all
    # processes that the tests start, see a GPU only with --gpu.
    if "--gpu" not in sys.argv:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # What runs tokenize and compile along the way is kept for this session only, and so is what
    # torchrun and wandb leave in temporary folders.
    _CACHE = tempfile.TemporaryDirectory(prefix="mixit_titan_tests_", ignore_cleanup_errors=True)
    for name in ("XDG_CACHE_HOME", "TMPDIR"):
        os.environ[name] = _CACHE.name
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(_CACHE.name) / "inductor")
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

import argparse
import fcntl
import gc
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.forkserver import Forkserver

if TYPE_CHECKING:
    from tests.runtime.conftest import Runs


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu", action="store_true", help="run tests/gpu, and nothing else")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        from tests.scheduling import place

        items.sort(key=lambda item: place(item.nodeid))
    if config.getoption("--gpu"):
        folder = Path(__file__).parent / "gpu"
        others = [item for item in items if folder not in item.path.parents]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if folder in item.path.parents]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from tests.scheduling import Scheduler

    config.option.loadscopereorder = False
    return Scheduler(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exclude what is imported here from garbage collection, which would take seconds in all."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def forkserver() -> Iterator[Forkserver]:
    """The server that forks processes with torch and torchtitan imported."""
    server = Forkserver()
    yield server
    server.close()


@pytest.fixture(scope="session")
def job_server() -> None:
    """The server for tests that run jobs from this process, which can have only one: the first such
    test would start it. This one has imported what any job needs."""
    import multiprocessing.forkserver

    from mixit_titan.jobs import process
    from mixit_titan.tasks.job import TASK_MODULES

    process.preload([*TASK_MODULES, "mixit_titan.config.run", "mixit_titan.bench.command"])
    multiprocessing.forkserver.ensure_running()


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, forkserver: Forkserver) -> "Runs":
    """Every variant trained on one rank, without compilation."""
    from mixit_titan.model.variants import VARIANTS
    from tests.runtime.conftest import Runs

    root = tmp_path_factory.getbasetemp()
    runs = Runs((root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "runs", forkserver)

    def make() -> None:
        runs.write_data()
        runs.train(1, {name: (name, []) for name in VARIANTS})

    _once(runs.root / "made", make)
    return runs


@pytest.fixture(scope="session")
def uncommon_runs(runs: "Runs") -> "Runs":
    """`llama` and `mixit_official` on two ranks, with what `runs` does not cover: tied weights,
    biases, grouped keys, the official recipe, a tokenizer with files, a validation at the end."""
    from mixit_titan.data.command import PrepareArguments, run_prepare

    text, data = runs.root / "text", runs.root / "words"
    common = ["--data.path", str(data), "--model.tied", "--model.bias"]
    common += ["--validator.enable", "--validator.freq", "20", "--validator.rows", "-1"]
    jobs = {
        "llama": ("standard", ["--model.kv_heads", "2", "--model.rope_theta", "500.0"]),
        "mixit_official": ("mixit", ["--model.mixing.recipe", "official"]),
    }

    def make() -> None:
        text.mkdir()
        for n, line in enumerate(inspect.getsource(argparse).split("\n\n")):
            (text / f"{n:04}.txt").write_text(line)
        run_prepare(PrepareArguments(source=str(text), out=data, train_tokenizer=300, workers=1))
        runs.train(2, {name: (variant, [*common, *own]) for name, (variant, own) in jobs.items()})

    _once(runs.root / "made_uncommon", make)
    return runs


def _once(made: Path, make: Callable[[], None]) -> None:
    """Let one of the workers that need it make it, while the others wait."""
    made.parent.mkdir(exist_ok=True)
    with made.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if made.stat().st_size == 0:
            make()
            file.write("made")


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """A run in this process sets RANK and related variables, which the next test must not
    inherit."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
