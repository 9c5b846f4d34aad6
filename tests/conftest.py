import os
import sys
import tempfile

# The suite is written for a CPU, with widths that no kernel of a GPU has. Torch, and all processes
# that the tests start, find no GPU but with --gpu.
if "--gpu" not in sys.argv:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

# Some sandboxes advertise AMX and do not let it run: a bfloat16 product would kill the process.
# oneDNN reads this when torch is imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# What runs tokenise on the way is kept for this session only.
_CACHE = tempfile.TemporaryDirectory(prefix="mixit_titan_tests_")
os.environ["XDG_CACHE_HOME"] = _CACHE.name

import argparse
import inspect
import multiprocessing.forkserver
from collections.abc import Iterator
from pathlib import Path

import pytest

from mixit_titan.data.command import PrepareArguments, run_prepare
from mixit_titan.jobs import process
from mixit_titan.model.variants import VARIANTS
from mixit_titan.tasks.job import TASK_MODULES
from tests.runtime.conftest import Runs


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu", action="store_true", help="run tests/gpu, and nothing else")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--gpu"):
        folder = Path(__file__).parent / "gpu"
        others = [item for item in items if folder not in item.path.parents]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if folder in item.path.parents]


@pytest.fixture(scope="session")
def forkserver() -> None:
    """For tests that run jobs from this process: it has one server only, which the first would
    start for itself. This one has imported what any job needs."""
    process.preload([*TASK_MODULES, "mixit_titan.config.run", "mixit_titan.bench.command"])
    multiprocessing.forkserver.ensure_running()


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Every variant trained on one rank, eager."""
    made = Runs(tmp_path_factory.mktemp("runs"))
    made.train(1, {name: (name, []) for name in VARIANTS})
    return made


@pytest.fixture(scope="session")
def uncommon_runs(runs: Runs) -> Runs:
    """`llama` and `mixit_official`, on two ranks: what the runs of `runs` have not. Tied weights,
    biases, grouped keys, the official recipe, a tokenizer with files, a validation at the end."""
    text, data = runs.root / "text", runs.root / "words"
    text.mkdir()
    for n, line in enumerate(inspect.getsource(argparse).split("\n\n")):
        (text / f"{n:04}.txt").write_text(line)
    run_prepare(PrepareArguments(source=str(text), out=data, train_tokenizer=300, workers=1))
    common = ["--data.path", str(data), "--model.tied", "--model.bias"]
    common += ["--validator.enable", "--validator.freq", "20", "--validator.rows", "-1"]
    jobs = {
        "llama": ("standard", ["--model.kv_heads", "2", "--model.rope_theta", "500.0"]),
        "mixit_official": ("mixit", ["--model.mixing.recipe", "official"]),
    }
    runs.train(2, {name: (variant, [*common, *own]) for name, (variant, own) in jobs.items()})
    return runs


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """A run in this process sets RANK and its like; the next test must not inherit them."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
