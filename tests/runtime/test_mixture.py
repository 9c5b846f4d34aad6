"""Runs over three sources, of which one is small."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch.distributed.checkpoint as dcp

from mixit_titan.config.checks import check_folder
from mixit_titan.config.run import load_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.errors import ConfigError
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.runtime.tensor_reader import load_state
from tests.forkserver import Forkserver
from tests.shards import random_documents, write_shards

from .conftest import SMALL
from .worker import train_all

CONFIG = str(shipped_configs()["debug_standard"])

WEIGHTS = {"a": 0.5, "b": 0.3, "c": 0.2}
DOCUMENTS = {"a": 90, "b": 60, "c": 5}
STEPS, BATCH = 6, 6
COMMON = [
    *("--training.global_batch_size", str(BATCH), "--lr_scheduler.total_steps", str(STEPS)),
    *("--data.packing", "documents", "--validator.enable", "true", "--validator.freq", "100"),
    *("--checkpoint.interval", "3"),
]


def words(root: Path, run: str, steps: int, **changed: str) -> list[str]:
    """`changed`: the folder of a source, where it is not its name."""
    tables = [
        f'{{path = "{root / changed.get(name, name)}", name = "{name}", weight = {weight}}}'
        for name, weight in WEIGHTS.items()
    ]
    own = ["--data.sources", f"[{', '.join(tables)}]", "--dump_folder", str(root / run)]
    return [*SMALL, *COMMON, *own, "--training.steps", str(steps)]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, forkserver: Forkserver) -> Path:
    root = tmp_path_factory.mktemp("mixed")
    for seed, (name, count) in enumerate(DOCUMENTS.items()):
        texts = random_documents(count, 50, seed=seed)
        write_shards(root / name, train=texts, validation=texts[:3])
    longer = random_documents(9, 50, seed=2)
    write_shards(root / "longer", train=longer, validation=longer[:3])
    first = [words(root, "whole", STEPS), words(root, "parts", 3)]
    forkserver.run_ranks(1, 2, train_all, [(CONFIG, own) for own in first])
    shutil.copytree(root / "parts", root / "grown")
    again = [words(root, "parts", STEPS), words(root, "grown", STEPS, c="longer")]
    forkserver.run_ranks(2, 2, train_all, [(CONFIG, own) for own in again])
    return root


def lines(root: Path, name: str, key: str) -> list[dict]:
    return [x for x in read_metrics(root / name / "metrics.jsonl") if key in x]


def test_a_run_resumed_on_two_ranks_has_the_losses_of_one_that_was_not(mixed: Path) -> None:
    whole, parts = ([x["loss"] for x in lines(mixed, name, "loss")] for name in ("whole", "parts"))
    np.testing.assert_allclose(parts, whole, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["whole", "parts", "grown"])
def test_the_metrics_say_the_rows_and_repeats_of_each_source(mixed: Path, name: str) -> None:
    found = lines(mixed, name, "loss")
    assert [line["step"] for line in found] == list(range(1, STEPS + 1))
    for line in found:
        for source, share in WEIGHTS.items():
            rows = line["sources"][source]["rows"]
            assert abs(rows - share * BATCH * line["step"]) < 1
            longer = name == "grown" and source == "c" and line["step"] > 3
            once = 9 if longer else DOCUMENTS[source]
            assert line["sources"][source]["repeats"] == max(0, rows - 1) // once


def test_each_source_is_validated_and_all_together(mixed: Path) -> None:
    found = lines(mixed, "whole", "validation_loss")
    assert [line["step"] for line in found] == [0, STEPS]
    for line in found:
        own = line["sources"].values()
        tokens = [source["tokens"] for source in own]
        nats = np.dot(tokens, [source["loss"] for source in own])
        assert line["validation_tokens"] == sum(tokens)
        assert line["validation_loss"] == pytest.approx(nats / sum(tokens), rel=1e-9)
    for at, path in enumerate(WEIGHTS):
        texts = random_documents(DOCUMENTS[path], 50, seed=at)[:3]
        assert tokens[at] == sum(min(len(text), 32) for text in texts)


def test_other_weights_in_the_past_are_refused_before_anything_is_changed(mixed: Path) -> None:
    other = [word.replace("weight = 0.5", "weight = 5") for word in words(mixed, "whole", STEPS)]
    with pytest.raises(ConfigError, match=r"it has read \[18, 11, 7\] rows of its sources, and by"):
        check_folder(load_run(CONFIG, other, world_size=1))


def test_a_mixture_does_not_become_a_folder_alone(mixed: Path) -> None:
    own = words(mixed, "whole", STEPS)
    at = own.index("--data.sources")
    alone = [*own[:at], "--data.path", str(mixed / "a"), *own[at + 2 :]]
    with pytest.raises(ConfigError, match=r"data\.sources is .* there and None here"):
        check_folder(load_run(CONFIG, alone, world_size=1))


def test_a_checkpoint_of_a_folder_alone_says_nothing_of_sources(tmp_path: Path) -> None:
    """A run that becomes a mixture loads it, and its loader finds what it has said itself."""
    dcp.save({"dataloader": {"consumed": 24}}, checkpoint_id=tmp_path, no_dist=True)
    state = {"dataloader": {"consumed": 0, "sources": "[]"}}
    load_state(tmp_path, state, no_dist=True)
    assert state == {"dataloader": {"consumed": 24, "sources": "[]"}}
