"""What settings are chosen on: neither what is trained nor what is tested."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from mixit_titan.errors import ConfigError
from mixit_titan.tasks.addition import Addition
from mixit_titan.tasks.examples import Examples, belongs_to, hold_out_validation
from mixit_titan.tasks.loop import Loop
from mixit_titan.tasks.mad_memorization import MadMemorization
from mixit_titan.tasks.memorization import Memorization
from mixit_titan.tasks.modular import Modular
from mixit_titan.tasks.retrieval import Retrieval
from mixit_titan.tasks.settings import Run, Settings
from mixit_titan.tasks.task import Task
from mixit_titan.tasks.yelp import Yelp
from tests.tasks.conftest import make_run


def rows(parts: Iterable[Examples]) -> set[tuple[int, ...]]:
    return {tuple(row) for part in parts for row in part.tokens.tolist()}


CASES = [
    (Retrieval(pairs=7, vocab=40), 0, 200),
    (Addition(digits=4), 500, 60),
    (MadMemorization(vocab=32, length=10), 0, 100),
    (Modular(modulus=23), 300, 0),
]


@pytest.mark.parametrize(("task", "train", "test"), CASES, ids=lambda x: type(x).__name__)
def test_train_validation_and_test_never_meet(task: Task, train: int, test: int) -> None:
    usual, tested = task.split(seed=3, train=train, test=test)
    stream, held_out = task.validation(seed=3, train=train, test=test)
    trained = rows(stream.batch(step, 100) for step in range(12))
    assert len(rows([held_out])) == len(held_out) >= (test or 25)
    assert not trained & rows([held_out])
    assert not rows([held_out]) & rows([tested]) and not trained & rows([tested])
    # Once settings are chosen, it is trained too.
    assert 5 < belongs_to(usual.batch(0, 100), "validation").sum() < 30
    assert not belongs_to(stream.batch(0, 100), "validation").any()
    # Nor is it trained with another seed of the choice, where examples are drawn.
    if task != CASES[-1][0]:
        other, _ = task.validation(seed=4, train=train, test=max(test, 1))
        assert not rows(other.batch(step, 100) for step in range(12)) & rows([held_out])


def test_reviews_of_validation_come_from_the_training_reviews(tmp_path: Path) -> None:
    file = tmp_path / "reviews.csv"
    lines = [f"{n % 2},word{n} word{n * 7} meal" for n in range(400)]
    file.write_text("label,text\n" + "\n".join(lines) + "\n")
    task = Yelp(csv=str(file), length=4, vocab=1000)
    usual, tested = task.split(seed=0, train=0, test=0)
    stream, held_out = task.validation(seed=0, train=0, test=0)
    assert rows([stream.examples]) | rows([held_out]) == rows([usual.examples])
    assert not rows([stream.examples]) & rows([held_out])
    assert 20 < len(held_out) < 80 and not rows([held_out]) & rows([tested])


def test_memorization_is_chosen_on_other_tables() -> None:
    task = Memorization(keys=5, values=5, vocab=20)
    for seed in (0, 1):
        (stream, test), (chosen, held_out) = (
            divide(seed=seed, train=0, test=0) for divide in (task.split, task.validation)
        )
        assert rows([stream.examples]) == rows([chosen.examples]) == rows([held_out])
        assert np.array_equal(test.labels, held_out.labels)
    tables = [task.validation(seed=seed, train=0, test=0)[1].labels for seed in (0, 1)]
    assert not np.array_equal(*tables)


def test_a_stream_of_ones_own_cannot_be_divided() -> None:
    class Own:
        def batch(self, step: int, size: int) -> Examples: ...

    with pytest.raises(ConfigError, match="Own is the task's own stream") as error:
        hold_out_validation(Own(), 10)
    assert "\n" not in str(error.value)


def test_a_run_is_evaluated_on_what_it_says(
    tmp_path: Path, fit: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    evaluate = Loop._evaluate
    monkeypatch.setattr(Loop, "_evaluate", lambda self: (seen.append(self.test), evaluate(self))[1])
    run = make_run("addition", "--digits 3 --test 30 --held-out validation")
    fit(run)
    assert rows(seen) == rows([run.task.validation(seed=0, train=0, test=30)[1]])
    settings = json.loads((tmp_path / "run" / "result.json").read_text())["settings"]
    assert settings["held_out"] == "validation"


def test_runs_of_before_keep_their_folders() -> None:
    """Which did not know of a validation split: test_task.py has their hashes."""
    described = Run(task=Addition(), settings=Settings()).described()
    assert not {"held_out", "std", "noise"} & described.keys()
    for own in ({"held_out": "validation"}, {"std": 0.5, "variant": "mixit"}):
        assert own.items() <= Run(task=Addition(), settings=Settings(**own)).described().items()
