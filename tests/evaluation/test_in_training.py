"""[eval]: tasks while a run trains."""

from pathlib import Path
from typing import Any

import pytest

from mixit_titan.config.run import load_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.errors import ConfigError
from mixit_titan.evaluation.tasks import evaluate_tasks, load_tasks
from mixit_titan.runtime.goodput import goodput
from mixit_titan.runtime.ledger import read_times
from mixit_titan.runtime.metrics import JsonLinesLogger, read_metrics
from mixit_titan.runtime.trained import load_trained
from tests.evaluation.local_tasks import write_tasks
from tests.runtime.conftest import SMALL, STEPS, Runs

pytest.importorskip("lm_eval", reason="lm-eval (the extra `eval`) is not installed")

DEBUG = str(shipped_configs()["debug_standard"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tasks(tmp_path_factory.mktemp("tasks") / "tasks", "choice", "cloze")


@pytest.fixture(scope="module")
def evaluated(runs: Runs, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of runs that were evaluated at steps 0, 8, 16 and 20, on 1 and 2 ranks."""
    eval_ = ["--eval.tasks", str(folder), "--eval.freq", "8", "--eval.limit", "4"]
    runs.train(1, {"evaluated_1": ("standard", [*eval_, "--checkpoint.enable"])})
    chunked = ["--loss.num_chunks", "2"]  # whose model runs without its head
    jobs = {"evaluated_2": ("standard", eval_), "evaluated_chunks": ("standard", eval_ + chunked)}
    runs.train(2, jobs)
    names = ("evaluated_1", *jobs)
    return {name: read_metrics(runs.folder(name) / "metrics.jsonl") for name in names}


def figures(lines: list[dict[str, Any]]) -> dict[int, dict[str, float]]:
    return {line["step"]: line["eval"] for line in lines if "eval" in line}


def test_it_is_evaluated_first_last_and_between(
    evaluated: dict[str, list[dict[str, Any]]],
) -> None:
    found = figures(evaluated["evaluated_1"])
    assert list(found) == [0, 8, 16, 20]
    names = {"local_choice/acc", "local_choice/acc_norm", "local_cloze/perplexity"}
    assert set(found[0]) == names | {"local_cloze/acc"}
    assert found[0]["local_cloze/perplexity"] != found[20]["local_cloze/perplexity"]


def test_the_last_figures_are_those_of_the_checkpoint(
    runs: Runs, folder: Path, evaluated: dict[str, list[dict[str, Any]]]
) -> None:
    from mixit_titan.evaluation.harness import TrainedModel

    model = TrainedModel(load_trained(runs.folder("evaluated_1"), STEPS))
    results = evaluate_tasks(model, load_tasks((str(folder),)), limit=4, errors=False)
    expected = {f"{t}/{m}": v for t, r in results.items() for m, v in r["metrics"].items()}
    assert figures(evaluated["evaluated_1"])[STEPS] == pytest.approx(expected, rel=1e-5)


def test_two_ranks_find_the_same(evaluated: dict[str, list[dict[str, Any]]]) -> None:
    one, two, chunked = (figures(lines) for lines in evaluated.values())
    assert two[0] == one[0] == chunked[0]  # bit by bit, where the weights are
    assert list(two) == list(one) == list(chunked)
    for step, expected in one.items():
        assert two[step] == pytest.approx(expected, rel=1e-3)
        assert chunked[step] == pytest.approx(expected, rel=1e-3)


def test_training_does_not_notice(runs: Runs, evaluated: dict[str, list[dict[str, Any]]]) -> None:
    lines = [line for line in evaluated["evaluated_1"] if "loss" in line]
    assert [line["loss"] for line in lines] == runs.losses("standard")
    assert [line["tokens"] for line in lines] == [256 * n for n in range(1, STEPS + 1)]


def test_its_time_is_not_training(runs: Runs, evaluated: dict[str, list[dict[str, Any]]]) -> None:
    """There is no validation in these runs."""
    (times,) = read_times(runs.folder("evaluated_1"))
    assert times["validate"] > 0
    assert goodput(runs.folder("standard")).validate == 0
    # Of the steps after an evaluation, too, tokens/s are those of the step.
    lines = [line for line in evaluated["evaluated_1"] if "loss" in line]
    steps = {line["step"]: 256 / line["tokens_per_s"] for line in lines}
    assert steps[9] + steps[17] < times["train"]


def test_a_resumed_run_writes_its_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step": 7, "loss": 3.0}\n{"step": 8, "loss": 2.0}\n{"step": 8, "validation_loss": 2.5}\n'
        '{"step": 8, "eval": {"a/acc": 0.1}}\n{"step": 9, "loss": 1.0}\n'
    )
    JsonLinesLogger(path, 1).log({"eval/a/acc": 0.2}, step=8)
    kept = [(line["step"], *(line.keys() - {"step", "seconds"})) for line in read_metrics(path)]
    assert kept == [(7, "loss"), (8, "loss"), (8, "validation_loss"), (8, "eval")]
    assert read_metrics(path)[-1]["eval"] == {"a/acc": 0.2}


@pytest.mark.parametrize(
    ("overrides", "ranks", "message"),
    [
        (["--eval.freq", "0"], 1, "eval.freq is 0: it must be at least 1"),
        (["--eval.tasks", "WRITTEN"], 1, "'local_written' generates text"),
        (["--eval.tasks", "NOTHING"], 1, "has no YAML files that define lm-eval tasks"),
        (
            ["--eval.tasks", "TASKS", "--parallelism.tensor_parallel_degree", "2"],
            2,
            "eval.tasks is not supported with parallelism.tensor_parallel_degree = 2",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_it_starts(
    runs: Runs, folder: Path, tmp_path: Path, overrides: list[str], ranks: int, message: str
) -> None:
    (tmp_path / "nothing").mkdir()
    places = {"TASKS": folder, "NOTHING": tmp_path / "nothing"}
    places["WRITTEN"] = write_tasks(tmp_path / "written", "written")
    words = [str(places.get(word, word)) for word in overrides]
    small = [*SMALL, "--data.path", str(runs.data), "--dump_folder", str(tmp_path / "run")]
    with pytest.raises(ConfigError, match=message):
        load_run(DEBUG, [*small, *words], world_size=ranks)
