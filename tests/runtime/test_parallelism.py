"""Mixing on two ranks, split in every way that there is: the losses are those of one rank.

Matrices that are complete on each rank are tested in test_training.py.
"""

from pathlib import Path

import pytest

from .conftest import Runs
from .test_training import assert_same

STORAGE = "--model.mixing.storage"
TENSOR = ["--parallelism.tensor_parallel_degree", "2"]
PIPELINE = ["--parallelism.pipeline_parallel_degree", "2"]
# Of a pipeline's ranks not all have a loss, and tensor parallel ones all have the same.
SKIP = ["--training.on_bad_step", "skip"]
JOBS = {
    "mixit_sharded": ("mixit", [STORAGE, "sharded"]),
    "mixit_tensor": ("mixit", TENSOR),
    "mixit_tensor_generated": (
        "mixit",
        [*TENSOR, STORAGE, "generated", "--parallelism.enable_sequence_parallel", "false"],
    ),
    "mixit_pipeline": ("mixit", PIPELINE),
    "frozen_qk_tensor": ("frozen_qk", [*TENSOR, *SKIP]),
    "frozen_qk_pipeline": ("frozen_qk", [*PIPELINE, *SKIP]),
}


@pytest.fixture(scope="module")
def split(runs: Runs) -> Runs:
    runs.train(2, JOBS)
    return runs


@pytest.mark.parametrize("name", JOBS)
def test_losses_are_those_of_one_rank(split: Runs, name: str) -> None:
    assert_same(split.losses(name), split.losses(JOBS[name][0]), 1e-4)


def _log(split: Runs, name: str, rank: int) -> str:
    return Path(split.folder(name), "logs", f"rank_{rank}.log").read_text()


def test_the_form_is_logged_once(split: Runs) -> None:
    assert _log(split, "mixit_sharded", 0).count("Mixing matrices are sharded") == 1
