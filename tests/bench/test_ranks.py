"""Two ranks through torchtitan's FSDP2, started once for all tests of this file; and one alone."""

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mixit_titan.bench.arguments import read_arguments
from mixit_titan.bench.ranks import add_efficiency, measure_alone, moved_bytes
from mixit_titan.bench.runs import read_point
from mixit_titan.errors import ConfigError
from mixit_titan.model.variants import VARIANTS
from tests.bench.conftest import TINY, make_point
from tests.bench.worker import bench
from tests.forkserver import Forkserver

NAMES = ["standard", "frozen_qk", "mixit"]
# Two rows on each rank, one after the other, the loss in chunks, tied weights, rows of documents.
SETTINGS = TINY.replace("--batch 2", "--chunks 4 --documents on --model.tied")
SETTINGS += " --training.local_batch_size 1 --training.global_batch_size 4"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, forkserver: Forkserver) -> Path:
    out = tmp_path_factory.mktemp("ranks")
    words = [*SETTINGS.split(), "--variants", *NAMES, "--no-alone", "--out", str(out)]
    forkserver.run_ranks(2, 1, bench, out, words)
    return out


def test_both_ranks_take_the_same_steps_in_the_same_order(folder: Path) -> None:
    first, second = (json.loads((folder / f"rank_{n}.json").read_text()) for n in (0, 1))
    assert first == second
    assert len(first) >= 3 * (1 + 2 + 8)


def test_total_follows_from_the_ranks(folder: Path) -> None:
    found = json.loads((folder / "bench.json").read_text())
    settings = found["settings"]
    assert (settings["ranks"], settings["batch"], settings["microbatches"]) == (2, 2, 2)
    assert [row["variant"] for row in found["variants"]] == NAMES
    for row in found["variants"]:
        assert row["tokens_per_s"] == pytest.approx(2 * 2 * 16 / row["step_seconds"])
        assert len(row["tokens_per_s_per_rank"]) == 2
        # A step is over when its slowest rank is.
        assert row["tokens_per_s"] <= 2 * min(row["tokens_per_s_per_rank"]) * 1.0001


def test_the_bytes_counted_from_the_model_are_those_that_moved(folder: Path) -> None:
    found = json.loads((folder / "bench.json").read_text())
    moved = json.loads((folder / "rank_0.json").read_text())
    for row in found["variants"]:
        counted = row["communicated_bytes_per_step"]
        steps = [step for step in moved if step["variant"] == row["variant"]]
        # The first step of a model gathers less: there is nothing of the step before.
        steps = [step for step in steps if step["step"] > 1 and step["microbatches"] is None]
        assert len(steps) >= 10
        for step in steps:
            assert step["weights"] == counted["weights"]
            assert step["gradients"] == counted["gradients"]
    standard, frozen, mixit = (row["communicated_bytes_per_step"] for row in found["variants"])
    # Half of the float32 gradients of two layers' queries and keys, which nobody needs, twice.
    assert standard["gradients"] - frozen["gradients"] == 2 * 2 * 2 * 32**2 * 4 // 2
    assert standard["weights"] == frozen["weights"]
    # No queries and keys at all, but a vector for each position; the matrices do not travel.
    assert standard["gradients"] - mixit["gradients"] == 2 * (2 * 2 * 32**2 - 16 * 32) * 4 // 2


@pytest.mark.parametrize(
    ("words", "weights", "gradients"),
    [
        # Counted by tests/bench/worker.py on two ranks.
        ("", 91712, 47424),
        ("--chunks 4", 97984, 47424),
        ("--model.tied", 85568, 44352),
        ("--chunks 4 --model.tied", 91840, 47424),
    ],
)
def test_bytes_with_chunks_and_tied_weights(words: str, weights: int, gradients: int) -> None:
    moved = moved_bytes(VARIANTS["standard"], make_point(words, ranks=2))
    assert moved == {"weights": weights, "gradients": gradients, "total": weights + gradients}


def test_one_rank_alone_has_the_batch_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a process: here it is not run, but answered."""

    def answer(command: list[str], *, env: dict[str, str], **_: Any) -> SimpleNamespace:
        assert not env.keys() & {"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "SLURM_STEP_ID"}
        assert env["PATH"] == os.environ["PATH"]
        alone = read_arguments(command[command.index("bench") + 1 :])
        assert alone.variants == ("standard", "mixit")
        point = read_point(alone, ranks=1)
        assert (point.batch, point.microbatches, point.chunks) == (2, 2, 4)
        rows = [{"variant": "standard", "tokens_per_s": 10.0}]
        (alone.out / "bench.json").write_text(json.dumps({"variants": rows}))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", answer)
    for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "SLURM_STEP_ID"):
        monkeypatch.setenv(name, "2")
    args = read_arguments([*SETTINGS.split(), "--variants", "standard", "mixit"])
    alone = measure_alone(args, read_point(args, ranks=2))
    found = {"settings": {"ranks": 2}, "variants": [{"variant": "standard", "tokens_per_s": 15.0}]}
    add_efficiency(found, alone)
    assert found["variants"][0]["scaling_efficiency"] == pytest.approx(0.75)


def test_one_rank_alone_that_fails_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = SimpleNamespace(returncode=2, stderr="a warning\nmixit-titan: it does not fit\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    args = read_arguments(TINY.split())
    with pytest.raises(ConfigError, match=r"it does not fit\): --no-alone leaves it out"):
        measure_alone(args, make_point(ranks=2))
