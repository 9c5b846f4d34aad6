"""When a solved run stops: decided on examples of the training side, never on the test set."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from mixit_titan.errors import ConfigError
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.tasks import loop
from mixit_titan.tasks.addition import Addition
from mixit_titan.tasks.evaluation import Score
from mixit_titan.tasks.examples import Examples, belongs_to
from mixit_titan.tasks.loop import Loop
from mixit_titan.tasks.mad_memorization import MadMemorization
from mixit_titan.tasks.memorization import Memorization
from mixit_titan.tasks.presets import PRESETS
from mixit_titan.tasks.retrieval import Retrieval
from mixit_titan.tasks.target import stopping_examples
from mixit_titan.tasks.task import Task, task_class
from tests.tasks.conftest import make_run
from tests.tasks.test_validation import rows

ADDITION = "--digits 3 --test 40 --target-accuracy 0.9"


def says(monkeypatch: pytest.MonkeyPatch, accuracy: Callable[[Loop, Examples], float]) -> None:
    """Evaluations that say what the test wants, of whatever model."""
    here: list[Loop] = []
    begin = Loop.__init__
    monkeypatch.setattr(Loop, "__init__", lambda self, *a: (here.append(self), begin(self, *a))[1])

    def evaluate(model: nn.Module, examples: Examples, *others: object) -> Score:
        right = accuracy(here[-1], examples)
        return Score(loss=1.0, accuracy=right, exact=right)

    monkeypatch.setattr(loop, "evaluate", evaluate)


@pytest.mark.parametrize("held_out", ["test", "validation"])
def test_a_perfect_score_on_what_is_reported_stops_nothing(
    fit: Callable, monkeypatch: pytest.MonkeyPatch, held_out: str
) -> None:
    says(monkeypatch, lambda run, examples: float(examples is run.test))
    result = fit(make_run("addition", f"{ADDITION} --held-out {held_out}"))
    assert (result["steps"], result["accuracy"]) == (20, 1.0)


def test_the_training_side_stops_a_run_and_the_test_set_is_reported(
    tmp_path: Path, fit: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(monkeypatch, lambda run, examples: 0.25 if examples is run.test else 0.95)
    result = fit(make_run("addition", ADDITION))
    assert (result["steps"], result["accuracy"]) == (5, 0.25)
    line = read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]
    assert (line["accuracy"], line["stopping_accuracy"]) == (0.25, 0.95)


def test_the_test_set_has_no_part_in_the_weights(fit: Callable, tmp_path: Path) -> None:
    """Two test sets, the same training and the same stop."""
    runs = [
        fit(make_run("addition", f"--digits 3 --target-accuracy 0.12 --test {n}"), f"{n}")
        for n in (40, 41)
    ]
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("40", "41")]
    assert files[0] == files[1] and runs[0]["steps"] == runs[1]["steps"]


def test_a_run_killed_after_its_target_does_not_train_on(
    fit: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run("addition", f"{ADDITION} --target-accuracy 0.0")

    def stop(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop, "_save_weights", stop)
        fit(run)
    monkeypatch.setattr(Loop, "_train_step", stop)
    assert fit(run)["steps"] == 5


CASES = [
    (Retrieval(pairs=7, vocab=40), 0),
    (Addition(digits=4), 500),
    (MadMemorization(vocab=32, length=10), 0),
    (MadMemorization(vocab=32, length=10), 100),
]


@pytest.mark.parametrize("divide", ["split", "validation"])
@pytest.mark.parametrize(("task", "train"), CASES)
def test_what_stops_a_run_is_of_the_training_side(task: Task, train: int, divide: str) -> None:
    stream, reported = getattr(task, divide)(seed=3, train=train, test=60)
    found = task.stopping(stream, count=60)
    assert 50 < len(rows([found])) == len(found) <= 60
    assert not belongs_to(found, "test").any() and not rows([found]) & rows([reported])
    assert divide == "split" or not belongs_to(found, "validation").any()
    assert not train or not rows([found]) & rows([stream.examples])
    again = task.stopping(stream, count=60)
    assert np.array_equal(found.tokens, again.tokens)
    other, _ = getattr(task, divide)(seed=4, train=train, test=60)
    assert rows([task.stopping(other, count=60)]) != rows([found])


def test_pairs_to_memorize_decide_themselves() -> None:
    task = Memorization(keys=5, values=5, vocab=20)
    stream, tested = task.split(seed=0, train=0, test=0)
    found = task.stopping(stream, count=25)
    assert rows([found]) == rows([tested])
    assert np.array_equal(found.labels, tested.labels)


def test_where_nothing_is_left_to_decide_it_says_so(fit: Callable) -> None:
    class Own:
        def batch(self, step: int, size: int) -> Examples: ...

    with pytest.raises(ConfigError, match="Own is the task's own stream") as error:
        stopping_examples(Own(), 10)
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="all examples of this task are listed"):
        fit(make_run("modular", "--modulus 7 --train 30 --target-accuracy 1"))
    assert fit(make_run("modular", "--modulus 7 --train 30"))["steps"] == 20


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_with_a_target_has_something_to_decide_it(preset: str) -> None:
    for name, values in PRESETS[preset].items():
        if values.get("target_accuracy") is not None:
            small = {"train": values["train"], "test": min(values["test"], 5)}
            task = task_class(name)()
            stream, reported = task.split(seed=0, **small)
            assert len(task.stopping(stream, count=len(reported))) == len(reported)


def test_without_a_target_nothing_else_is_evaluated(tmp_path: Path) -> None:
    run = make_run("addition", "--digits 3 --test 40 --target-accuracy None")
    assert Loop(run, tmp_path, torch.device("cpu"), None).stopping is None
