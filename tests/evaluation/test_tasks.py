"""`mixit-titan eval --tasks`: what it writes and shows, and what it refuses."""

import functools
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from mixit_titan.cli import main
from mixit_titan.evaluation.command import _tasks_table
from mixit_titan.evaluation.tasks import check_installed
from tests.evaluation.local_tasks import write_tasks
from tests.evaluation.worker import evaluate
from tests.forkserver import Forkserver
from tests.runtime.conftest import Runs

HUB = """\
task: local_hub
dataset_path: nobody/nothing
test_split: test
output_type: multiple_choice
doc_to_text: context
doc_to_choice: choices
doc_to_target: label
"""


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr("sys.argv", ["mixit-titan", "eval", *map(str, arguments)])
    main()


def refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, *arguments: object
) -> str:
    with pytest.raises(SystemExit) as ended:
        call(monkeypatch, *arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("mixit-titan:") == 1 and "Traceback" not in said
    return said


def test_a_file_for_each_task_and_a_table(
    runs: Runs,
    tasks: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    words = [runs.folder("mixit"), "--tasks", tasks, "--limit", 3, "--out", tmp_path / "out"]
    call(monkeypatch, *words)
    said = capsys.readouterr().out
    written = sorted(file.name for file in (tmp_path / "out" / "step-20").glob("*.json"))
    names = ("choice", "cloze", "rolling", "written")
    assert written == [f"local_{name}-limit-3.json" for name in names]
    choice = json.loads((tmp_path / "out" / "step-20" / written[0]).read_text())
    assert choice["step"] == 20 and choice["limit"] == choice["examples"] == 3
    assert choice["of"] == 5 and choice["variant"] == "mixit"
    assert choice["metrics"]["acc"] * 3 == pytest.approx(round(choice["metrics"]["acc"] * 3))
    assert "local_choice" in said and f"{choice['metrics']['acc']:.4f}" in said
    call(monkeypatch, *words, "--json")
    assert json.loads(capsys.readouterr().out)["local_choice"] == choice


def test_large_figures_fit_the_table(capsys: pytest.CaptureFixture) -> None:
    """A perplexity and its error, as of a model of a few steps, on a terminal of 80 columns."""
    stack = SimpleNamespace(stack=SimpleNamespace(name="mixit"))
    trained = SimpleNamespace(model=SimpleNamespace(config=stack), step=6)
    metrics = {"perplexity": 2592116292.6538115, "perplexity_stderr": 1158436953751820.2}
    table = _tasks_table(trained, {"cloze": {"metrics": metrics | {"acc": 0.25}, "examples": 5}})
    Console(width=80).print(table)
    said = capsys.readouterr().out
    assert "2.5921e+09" in said and "1.1584e+15" in said and "0.2500" in said
    assert "…" not in said


def test_another_limit_is_another_file(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval (the extra `eval`) is not installed")
    tasks = write_tasks(tmp_path / "tasks", "choice")
    for options in ([], ["--limit", 2]):
        out = ["--out", tmp_path / "out", *options]
        call(monkeypatch, runs.folder("mixit"), "--tasks", tasks, *out)
    files = (tmp_path / "out" / "step-20").glob("*.json")
    examples = {file.name: json.loads(file.read_text())["examples"] for file in files}
    assert examples == {"local_choice.json": 5, "local_choice-limit-2.json": 2}


def test_two_ranks_write_the_same(
    runs: Runs,
    tasks: Path,
    tmp_path: Path,
    forkserver: Forkserver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [str(runs.folder("standard")), "--tasks", str(tasks), "--out"]
    call(monkeypatch, *words, tmp_path / "one")
    forkserver.run_ranks(2, 1, evaluate, [*words, str(tmp_path / "two")])
    files = list((tmp_path / "one" / "step-20").glob("*.json"))
    assert len(files) == 4
    for file in files:
        assert file.read_text() == (tmp_path / "two" / "step-20" / file.name).read_text()


def test_a_hub_that_cannot_be_reached(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval (the extra `eval`) is not installed")
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "hub.yaml").write_text(HUB)
    folder, out = runs.folder("mixit"), tmp_path / "out"
    said = refused(monkeypatch, capsys, folder, "--tasks", tmp_path / "tasks", "--out", out)
    assert "the data of task 'local_hub' cannot be downloaded" in said
    assert not out.exists()


def test_an_unknown_task_has_near_names(
    runs: Runs,
    tasks: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    """Among those of the folder: the harness takes its time to read all of its own."""
    import lm_eval.tasks

    own = functools.partial(lm_eval.tasks.TaskManager, include_defaults=False)
    monkeypatch.setattr(
        lm_eval.tasks, "TaskManager", lambda include_path, **_: own(include_path=include_path)
    )
    folder, out = runs.folder("mixit"), tmp_path / "out"
    said = refused(monkeypatch, capsys, folder, "--tasks", f"{tasks},local_choise", "--out", out)
    assert "unknown task 'local_choise': did you mean 'local_choice'" in said
    assert len(said.splitlines()) == 1 and not out.exists()


@pytest.mark.slow
def test_an_unknown_task_has_near_names_of_the_harness(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Slow: the harness reads all of its tasks."""
    pytest.importorskip("lm_eval", reason="lm-eval (the extra `eval`) is not installed")
    folder, out = runs.folder("mixit"), tmp_path / "out"
    said = refused(monkeypatch, capsys, folder, "--tasks", "helaswag", "--out", out)
    assert "unknown task 'helaswag': did you mean 'hellaswag'" in said
    assert not out.exists()


def test_more_new_tokens_than_the_model_has_room_for(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval (the extra `eval`) is not installed")
    folder = write_tasks(tmp_path / "tasks", "written")
    file = folder / "written.yaml"
    file.write_text(file.read_text().replace("max_gen_toks: 8", "max_gen_toks: 32"))
    options = ["--tasks", folder, "--out", tmp_path / "out"]
    said = refused(monkeypatch, capsys, runs.folder("mixit"), *options)
    assert "the task asks for 32 new tokens, and the model's context is 32" in said
    assert not list((tmp_path / "out").rglob("*.json"))


def test_an_answer_longer_than_the_models_context(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval (the extra `eval`) is not installed")
    folder = write_tasks(tmp_path / "tasks", "cloze")
    (folder / "data.jsonl").write_text(json.dumps({"context": "a", "word": "b" * 40}) + "\n")
    options = ["--tasks", folder, "--out", tmp_path / "out"]
    said = refused(monkeypatch, capsys, runs.folder("mixit"), *options)
    assert "the task scores 41 tokens at once, and the model's context is 32" in said
    assert not list((tmp_path / "out").rglob("*.json"))


def test_without_the_harness_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install 'mixit-titan\\[eval\\]'"):
        check_installed()
