"""Tasks with stacks: a stack of equal pairs is the variant, and every name says what was run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from mixit_titan.cli import main
from mixit_titan.model.pairs import PAIRS
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.tasks.command import run_task
from mixit_titan.tasks.settings import Run

from .conftest import TINY, make_run

Fit = Callable[..., dict[str, Any]]


def lines(folder: Path) -> list[dict[str, Any]]:
    return [{**line, "seconds": 0} for line in read_metrics(folder / "metrics.jsonl")]


@pytest.mark.parametrize("variant", PAIRS)
def test_equal_pairs_give_the_losses_and_weights_of_the_variant_bit_for_bit(
    variant: str, fit: Fit, tmp_path: Path
) -> None:
    """The stack is written as its mixer and frozen parts, layer by layer."""
    pair = PAIRS[variant].structure
    base = make_run("retrieval", f"--variant {variant} --layers 2 --pairs 4 --steps 6")
    written = make_run("retrieval", f"--stack={pair}@0 --layers 2 --pairs 4 --steps 6")
    alike = dict(vars(base.settings), variant="standard", stack=f"{pair}@0 {pair}@1")
    stack = Run(task=base.task, settings=type(base.settings)(**alike))
    results = [fit(base, "variant"), fit(stack, "stack"), fit(written, "other")]
    assert results[0]["variant"] == results[1]["variant"] == variant
    assert lines(tmp_path / "variant") == lines(tmp_path / "stack")
    ours, theirs = (load_file(tmp_path / n / "model.safetensors") for n in ("variant", "stack"))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)
    same = lines(tmp_path / "other") == lines(tmp_path / "variant")
    assert same == (variant == "standard")  # one layer of it beside a standard one


@pytest.mark.parametrize(
    ("words", "name", "folder"),
    [
        ("--stack mixit*1", "mixit", "addition_mixit_"),
        ("--stack uniform@0", "uniform", "addition_uniform_"),
        ("--mixer learned --freeze matrix", "learned-freeze-matrix", "addition_learned-freeze-"),
        ("--freeze v", "attention-freeze-v", "addition_standard_"),  # as it has always been
        ("--variant frozen_qk", "frozen_qk", "addition_frozen_qk_"),
    ],
)
def test_progress_wandb_and_result_name_the_stack(
    words: str,
    name: str,
    folder: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    tmp_path: Path,
) -> None:
    class Recorder:
        def log(self, *line: Any, **step: int) -> None:
            pass

        def finish(self, exit_code: int) -> None:
            pass

    named: list[str] = []
    monkeypatch.setattr("wandb.init", lambda **own: named.append(own["name"]) or Recorder())
    monkeypatch.chdir(tmp_path)
    run = make_run("addition", f"{words} --steps 1")
    result = run_task(run, None, device="cpu", wandb=True, quiet=False)
    assert result["variant"] == name and named == [f"addition_{name}"]
    assert f"addition_{name}: step 1 of 1" in capsys.readouterr().err
    (made,) = (tmp_path / "runs/tasks").iterdir()
    assert made.name.startswith(folder)


@pytest.mark.usefixtures("job_server")
def test_a_sweep_over_stacks_reports_each_by_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    small = TINY.replace("--layers 1", "--layers 2").replace("--steps 20", "--steps 1").split()
    fixed = [f"{k[2:]}={v}" for k, v in zip(small[::2], small[1::2], strict=True)]
    written = ["mixit", "mixit standard@last", "window@0 learned@1"]
    words = ["--grid", f"stack={','.join(written)}", "--set", *fixed, "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["mixit-titan", "sweep", "addition", *words])
    main()
    names = ["mixit", "mixit standard", "window learned"]
    report = json.loads((tmp_path / "sweep.json").read_text())
    for key in ("points", "groups"):
        assert [row["variant"] for row in report[key]] == names
        assert [row["axes"]["stack"] for row in report[key]] == written
    assert [*report["best"]] == names
    said = capsys.readouterr().err
    assert all(
        f": {name} stack={text} seed 0" in said for name, text in zip(names, written, strict=True)
    )


def test_a_grid_of_mixers_takes_the_place_of_the_variants(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    words = ["--variants", "mixit", "--grid", "mixer=uniform,linear", "--out", str(tmp_path / "x")]
    monkeypatch.setattr("sys.argv", ["mixit-titan", "sweep", "addition", *words])
    with pytest.raises(SystemExit):
        main()
    assert "--variants and mixer: leave one of them out" in capsys.readouterr().err
