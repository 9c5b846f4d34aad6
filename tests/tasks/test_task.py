"""Tasks by name and by import path: the toy task of docs/own_task.md, from outside and inside."""

import dataclasses
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from mixit_titan.analysis.analyzed_run import load_analyzed_run
from mixit_titan.cli import main
from mixit_titan.errors import ConfigError
from mixit_titan.tasks.addition import Addition
from mixit_titan.tasks.dyck import Dyck
from mixit_titan.tasks.examples import Examples
from mixit_titan.tasks.hop import Hop
from mixit_titan.tasks.models import PooledClassifier, build_model
from mixit_titan.tasks.options import preset_run
from mixit_titan.tasks.settings import Run, Settings
from mixit_titan.tasks.task import TASKS, Task, check_examples, task_class, task_name
from mixit_titan.tasks.trained import load_trained_task

PAGE = Path(__file__).parents[2] / "docs" / "own_task.md"
SMALL = {"width": 8, "heads": 2, "layers": 1, "batch": 4, "steps": 2, "test": 20}


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The documented task as a user would have it: a module in the current folder."""
    section = PAGE.read_text().partition("## A complete task\n")[2]
    code = re.search(r"(?:^    .*\n|^\n)+", section, re.MULTILINE)[0]
    (tmp_path / "toy_tasks.py").write_text(textwrap.dedent(code))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "toy_tasks:Copy"
    sys.modules.pop("toy_tasks", None)


def call(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr("sys.argv", ["mixit-titan", *line.split()])
    main()


def test_the_documented_examples_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, toy: str
) -> None:
    call(monkeypatch, f"task {toy} --show 1")
    shown = capsys.readouterr().out.strip()
    question, answer = shown.split(" -> ")
    assert len(answer) == 11 and question == f"{answer} | {answer[:-2]}"
    assert f"`{shown}`" in PAGE.read_text()
    with pytest.raises(SystemExit):
        call(monkeypatch, f"task {toy} --help")
    assert "Letters to repeat." in capsys.readouterr().out


def test_a_run_of_an_outside_task_comes_back_only_if_the_task_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, toy: str, tmp_path: Path
) -> None:
    line = f"task {toy} --variant mixit --length 3 "
    line += " ".join(f"--{key} {value}" for key, value in SMALL.items())
    call(monkeypatch, line)
    said = capsys.readouterr().out.splitlines()
    (analyze,) = [words for words in said if words.startswith("  mixit-titan analyze ")]
    (folder,) = (tmp_path / "runs/tasks").iterdir()
    assert re.fullmatch(r"toy_tasks-Copy_mixit_[0-9a-f]{12}", folder.name)
    result = json.loads((folder / "result.json").read_text())
    assert result["task"] == result["settings"]["task"] == toy
    call(monkeypatch, line)
    assert "finished run: kept" in capsys.readouterr().err

    del sys.modules["toy_tasks"]
    with pytest.raises(SystemExit):
        call(monkeypatch, f"analyze attention {folder}")
    error = capsys.readouterr().err
    assert "name it with --task MODULE:CLASS" in error and error.count("\n") == 1
    assert "toy_tasks" not in sys.modules
    with pytest.raises(
        ConfigError, match=r"--task is 'addition', and .* holds the task 'toy_tasks"
    ):
        load_trained_task(folder, task="addition")
    assert "toy_tasks" not in sys.modules

    run, _ = load_trained_task(folder, task=toy)
    assert task_name(run.task) == toy and run.task.length == 3
    subject = load_analyzed_run(folder, text=None, count=2, task=toy)
    assert [subject.token_name(token) for token in (0, 25, 26)] == ["a", "z", "|"]
    call(monkeypatch, analyze.removeprefix("  mixit-titan "))
    assert (tmp_path / folder / "analysis" / "attention.png").exists()


def test_a_sweep_of_an_outside_task(
    monkeypatch: pytest.MonkeyPatch, toy: str, tmp_path: Path
) -> None:
    small = " ".join(f"{key}={value}" for key, value in SMALL.items())
    call(monkeypatch, f"sweep {toy} --variants mixit --grid length=2,3 --set {small} --out sweep")
    report = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert report["task"] == toy
    assert [group["axes"] for group in report["groups"]] == [{"length": "2"}, {"length": "3"}]


def test_one_line_makes_it_a_task_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, toy: str
) -> None:
    monkeypatch.setitem(TASKS, "copy", toy)
    assert task_class("copy") is task_class(toy) and task_name(task_class(toy)()) == "copy"
    for preset in ("cpu", "paper"):  # neither has a row for it
        run = preset_run("copy", preset, ["--variant", "mixit"])
        assert run == Run(task=task_class(toy)(), settings=Settings(variant="mixit"))
    call(monkeypatch, "task copy --show 2 --length 4")
    assert len(capsys.readouterr().out.splitlines()) == 2


BAD = {
    "absent_module:Copy": "cannot be imported (No module named 'absent_module')",
    "toy_tasks:Cpy": "unknown task 'Cpy' in toy_tasks: did you mean 'Copy'?",
    "sys:Copy": "unknown task 'Copy' in sys",
    "toy_tasks:np": "it is not a class that inherits from mixit_titan.tasks.task.Task",
    "toy_tasks:Examples": "it is not a class that inherits",
    "toy_tasks:Task": "it lacks draw, positions, token_count",
    "toy_tasks.py:Copy": "'toy_tasks' is not a package",
    "./toy_tasks.py:Copy": "is not an import path: write MODULE:CLASS",
    "toy_tasks:": "is not an import path",
    ":Copy": "is not an import path",
    "toy_tasks": "unknown task 'toy_tasks' (allowed: addition, ",
    "toy_tasks:Plain": "it lacks the line @dataclass(frozen=True, kw_only=True)",
    "toy_tasks:Unset": "its field width_of_it has no default",
    "toy_tasks:Clash": "has a field for --steps, which every task has",
    "toy_tasks:Named": "has a field for --task, which every task has",
}
MORE = """

class Plain(Copy):
    size: int = 3

@dataclass(frozen=True, kw_only=True)
class Unset(Copy):
    width_of_it: int

@dataclass(frozen=True, kw_only=True)
class Clash(Copy):
    steps: int = 3

@dataclass(frozen=True, kw_only=True)
class Named(Copy):
    task: str = ""
"""


@pytest.mark.parametrize("command", ["task", "sweep"])
@pytest.mark.parametrize("path", BAD)
def test_a_path_that_is_no_task_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    toy: str,
    path: str,
    command: str,
) -> None:
    with Path("toy_tasks.py").open("a") as file:
        file.write(MORE)
    with pytest.raises(SystemExit) as exit_:
        call(monkeypatch, f"{command} {path}")
    error = capsys.readouterr().err
    assert exit_.value.code == 2 and BAD[path] in error and error.count("\n") == 1, error


def test_a_result_file_alone_imports_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "strangers_code.py").write_text("open('ran', 'w').close()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("strangers_code:Task", "strangers_code", "addition:x", ["strangers_code:Task"]):
        result = {"settings": {"task": name, **vars(Settings())}}
        (tmp_path / "result.json").write_text(json.dumps(result))
        with pytest.raises(ConfigError):
            load_trained_task(tmp_path)
        assert "strangers_code" not in sys.modules and not (tmp_path / "ran").exists()


RECORDED = {
    "addition": "44358328846b",
    "retrieval": "2a94acef07ec",
    "hop": "428774b0b3ea",
    "modular": "73eb9bf572a2",
    "dyck": "c9a308007515",
    "memorization": "5fd6ac1e2eef",
    "yelp": "df7aead0b04d",
    "imitation": "ccba49ed9bba",
    "mqar": "d5609db287f8",
    "mad_recall": "3fa2519ff525",
    "mad_fuzzy_recall": "3c2afca668c2",
    "mad_noisy_recall": "52cdfc251ca2",
    "mad_selective_copying": "d008ddb147e6",
    "mad_compression": "7c9d3a993b93",
    "mad_memorization": "9a196484dd50",
    "induction": "05234a4d7745",
    "sorting": "1e1887433c0e",
    "dyck_k": "278987260763",
    "parity": "3dfba6255334",
    "modular_sum": "2afbf71f61f4",
}


@pytest.mark.parametrize("name", TASKS)
def test_a_built_in_task_names_its_folders_as_it_always_did(name: str) -> None:
    run = Run(task=task_class(name)(), settings=Settings())
    assert (task_name(run.task), run.hash) == (name, RECORDED[name])


WRONG_EXAMPLES = {
    "more than `positions`, 3": {"tokens": np.zeros((2, 4), int), "labels": np.zeros((2, 4), int)},
    "tokens outside of 0..`token_count` - 1, 5": {"tokens": np.full((2, 3), 6)},
    r"labels of shape \(2, 1\), which should be \(2, 3\)": {"labels": np.zeros((2, 1), int)},
    "labels outside of 0..5": {"labels": np.array([[0, 6, -100]] * 2)},
    r"slices 'k' of shape \(2,\), which should be \(2, 1\)": {"slices": {"k": np.zeros(2, int)}},
}


@pytest.mark.parametrize("message", WRONG_EXAMPLES)
def test_examples_that_contradict_their_task_are_one_sentence(message: str) -> None:
    task = Dyck(length=2)
    right = {"tokens": np.zeros((2, 3), int), "labels": np.array([[0, 5, -100]] * 2)}
    narrow = dataclasses.make_dataclass("Narrow", [], bases=(Dyck,), frozen=True, kw_only=True)
    narrow.positions = property(lambda self: 3)
    check_examples(narrow(length=task.length), Examples(**right))
    with pytest.raises(ConfigError, match=f"has examples with .*{message}: fix its `draw`"):
        check_examples(narrow(length=2), Examples(**right | WRONG_EXAMPLES[message]))


def test_tokens_have_names() -> None:
    def names(task: Task) -> list[str]:
        return [task.token_name(token) for token in range(task.token_count)]

    digits = [str(d) for d in range(10)]
    assert names(Addition()) == [*digits, "+", "=", *(f"{d}'" for d in digits), "stop"]
    assert names(Dyck()) == ["(", ")", "start", "?", "no", "yes"]
    assert names(Hop(letters=3, hops=2)) == ["a", "b", "c", "_", "k=0", "k=1", "k=2"]


def test_a_task_with_classes_has_a_pooled_head_and_figures_of_its_own(toy: str) -> None:
    """What only built-in tasks used to have, for a task that nothing in the package knows."""
    copy = task_class(toy)
    kind = {"classes": property(lambda self: 3), "padding": property(lambda self: 26)}
    kind["figures"] = lambda self, score, trained_parameters: {"errors": 1 - score.accuracy}
    classified = type("Classified", (copy,), kind)
    run = Run(task=classified(), settings=Settings(width=8, heads=2, layers=1))
    model = build_model(run)
    assert isinstance(model, PooledClassifier) and model.padding == 26
    assert model(torch.zeros(5, 4, dtype=torch.long)).shape == (5, 1, 3)
