"""Testing on sequences that are longer than those of training."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torchtitan.components.loss import IGNORE_INDEX

from mixit_titan.errors import ConfigError
from mixit_titan.tasks.lengths import longer_tasks
from mixit_titan.tasks.trained import load_trained_task
from tests.tasks.conftest import make_run


@pytest.mark.parametrize("model", ["--stack standard", "--stack window", "--variant lstm"])
@pytest.mark.parametrize(
    ("task", "short", "long"),
    [
        ("parity", "--length 12 --held-out validation", 24),
        ("induction", "--max-gap 4 --pattern 3", 20),
        ("mad_compression", "--length 6", 11),
    ],
)
def test_accuracy_by_length_is_that_of_the_trained_model(
    fit: Callable, tmp_path: Path, model: str, task: str, short: str, long: int
) -> None:
    """Counted again, example by example, with the model that the folder holds."""
    found = fit(make_run(task, f"{model} {short} --test-length {long} --test 30"))
    by_length = found["slices"]["test_length"]
    assert len(by_length) == 2 and next(iter(by_length.values())) == found["accuracy"]
    run, trained = load_trained_task(tmp_path / "run")
    (longer,) = longer_tasks(run).values()
    side = longer.validation if run.settings.held_out == "validation" else longer.split
    _, examples = side(seed=run.settings.seed, train=0, test=30)
    assert examples.tokens.shape[1] == longer.positions > run.task.positions
    right = asked = 0
    for tokens, labels in zip(examples.tokens, examples.labels, strict=True):
        said = trained(torch.from_numpy(tokens).long()[None])[0].argmax(-1).numpy()
        asked += int(np.sum(labels != IGNORE_INDEX))
        right += int(np.sum(said == labels))
    assert by_length[str(long)] == pytest.approx(right / asked, abs=1e-12)


def test_training_does_not_know_of_the_longer_test(fit: Callable, tmp_path: Path) -> None:
    plain = fit(make_run("dyck_k", "--length 8 --test 20"), "plain")
    longer = fit(make_run("dyck_k", "--length 8 --test 20 --test-length 16 32"), "longer")
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("plain", "longer")]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert plain["accuracy"] == longer["accuracy"]
    assert list(longer["slices"]["test_length"]) == ["8", "16", "32"]
    assert {k: v for k, v in longer["slices"].items() if k != "test_length"} == plain["slices"]


@pytest.mark.parametrize(("task", "key"), [("addition", "digits"), ("retrieval", "pairs")])
def test_what_makes_a_task_longer_has_another_name(task: str, key: str) -> None:
    run = make_run(task, f"--{key} 3 --test-length 5")
    run.check()
    (longer,) = longer_tasks(run).values()
    assert getattr(longer, key) == 5 and run.positions == longer.positions > run.task.positions


@pytest.mark.parametrize(
    ("task", "words", "message"),
    [
        (
            "parity",
            "--variant mixit --test-length 32",
            "mixing matrices of 'mixit' have only 16 rows",
        ),
        (
            "mqar",
            "--layers 2 --stack=mixit@0 --test-length 80",
            "train at that length with --length",
        ),
        ("parity", "--stack embedding --test-length 32", "the embedding matrices of 'embedding'"),
        ("parity", "--variant linear --test-length 32", "learned vectors for only 16 positions"),
        ("parity", "--variant random --test-length 32", "learned vectors for only 16 positions"),
        ("parity", "--test-length 32 16", "above the training length, --length 16"),
        ("modular", "--test-length 5", "have a single length"),
        ("mad_recall", "--test-length 65", "an even length"),
        ("retrieval", "--test-length 25", "only 24 different keys"),
    ],
)
def test_a_length_that_cannot_be_is_one_sentence(task: str, words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        make_run(task, words).check()
    assert "\n" not in str(error.value)
