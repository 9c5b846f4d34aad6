"""`mixit-titan analyze` as a user types it."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from mixit_titan.analysis.analyzed_run import load_analyzed_run
from mixit_titan.cli import main
from tests.runtime.conftest import Runs

KINDS = ("attention", "covariance", "subspace", "spectrum")
FEW = ["--sequences", "6"]
PNG = b"\x89PNG\r\n\x1a\n"


def call(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> None:
    monkeypatch.setattr("sys.argv", ["mixit-titan", "analyze", *map(str, words)])
    main()


def quick(kind: str) -> list[str]:
    depths = ["--depths", "1", "3"] if kind in ("covariance", "spectrum") else []
    return [*FEW, *depths]


def check(
    kind: str, found: dict[str, Any], layers: int, heads: int, mixing: tuple[int, ...] = ()
) -> None:
    """The schema that other programs read. `mixing`: layers without attention, if some have it."""
    if kind == "attention":
        places = [(row["layer"], row["head"]) for row in found["heads"]]
        assert places == [(layer, head) for layer in range(layers) for head in range(heads)]
        for score in ("induction", "previous"):
            attending = [row for row in found["heads"] if row["layer"] not in mixing]
            best = max(attending, key=lambda row: row[score])
            expected = {"layer": best["layer"], "head": best["head"], "score": best[score]}
            assert found[f"{score}_head"] == expected
        return
    rows = found["rows"]
    if kind == "covariance":
        keys = {"variant", "layers", "trained", "covariance", "cosine"}
        assert all(set(row) == keys for row in rows)
        assert [row["trained"] for row in rows[:2]] == [False, True]
        started = [(row["variant"], row["layers"]) for row in rows if not row["trained"]]
        assert {("random", 1), ("random", 3), ("mixit", 1), ("mixit", 3)} <= set(started)
        assert len(set(started)) == len(started)
    elif kind == "subspace":
        assert [row["layer"] for row in rows] == list(range(layers + 1))
        assert all(0 < row["neurons"] <= row["principal"] <= 1 + 1e-9 for row in rows)
    else:
        assert {"mixit", "softmax"} <= {row["kind"] for row in rows}
        for row in rows:
            values = row["singular_values"]
            assert values == sorted(values, reverse=True) and len(values) == found["length"]
            assert 1 - 1e-9 <= row["effective_rank"] <= len(values) + 1e-9


@pytest.mark.parametrize("variant", ["frozen_qk", "mixit", "hybrid"])
def test_a_task(
    task_runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    tmp_path: Path,
    variant: str,
) -> None:
    for kind in KINDS:
        out = tmp_path / "deep" / kind
        call(monkeypatch, kind, task_runs / variant, "--out", out, *quick(kind))
        mixing = (0,) if variant == "hybrid" else ()
        check(kind, json.loads((out / f"{kind}.json").read_text()), 2, 2, mixing)
        picture = (out / f"{kind}.png").read_bytes()
        assert picture.startswith(PNG) and len(picture) > 5000
        assert sorted(file.name for file in out.iterdir()) == [f"{kind}.json", f"{kind}.png"]
        shown = capsys.readouterr().out
        assert f"wrote {out}/{kind}.json" in shown and f"wrote {out}/{kind}.png" in shown


def test_a_model_is_at_its_own_start_and_then_trained(
    task_runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before training, frozen_qk is standard. A `random` model of 2 layers at initialization is the
    point of depth 2 as well."""
    rows = {}
    for variant in ("standard", "frozen_qk", "random"):
        out = tmp_path / variant
        call(monkeypatch, "covariance", task_runs / variant, "--out", out, "--depths", "2", *FEW)
        rows[variant] = json.loads((out / "covariance.json").read_text())["rows"]
    own_start, own, random, mixit = rows["frozen_qk"]
    assert (own_start["variant"], own["variant"]) == ("frozen_qk", "frozen_qk")
    assert own["cosine"] != own_start["cosine"] == rows["standard"][0]["cosine"]
    assert mixit["variant"] == "mixit"
    assert [row["trained"] for row in rows["random"]] == [False, True, False]
    assert rows["random"][0] == random


OTHERS = {
    "yelp": "covariance",  # one answer for the complete sequence
    "hop": "attention",  # an answer at every place
    "modular": "attention",  # no token twice
    "linear": "attention",  # a baseline with fixed maps
}


@pytest.mark.parametrize("run", OTHERS)
def test_tasks_of_other_kinds(task_runs: Path, monkeypatch: pytest.MonkeyPatch, run: str) -> None:
    for kind in ("subspace", OTHERS[run]):
        call(monkeypatch, kind, task_runs / run, *quick(kind))
        assert (task_runs / run / "analysis" / f"{kind}.png").stat().st_size > 5000


@pytest.mark.parametrize(("variant", "kinds"), [("standard", KINDS), ("mixit", KINDS[:1])])
def test_a_language_model(
    runs: Runs,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    variant: str,
    kinds: tuple[str, ...],
) -> None:
    for kind in kinds:
        call(monkeypatch, kind, runs.folder(variant), "--out", tmp_path, *quick(kind))
        found = json.loads((tmp_path / f"{kind}.json").read_text())
        check(kind, found, layers=2, heads=4)
        if "sequences" in found:
            assert found["sequences"] == "6 sequences of 32 tokens from the run's validation data"


def test_theorems_need_no_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mixit_titan.analysis.expressivity._STEPS", 2)
    call(monkeypatch, "sde", "--widths", "16", "8", "--paths", "400", "--ratio", "0.125")
    call(monkeypatch, "expressivity", "--heads", "2", "--seeds", "1")
    out = Path("runs/analysis")
    for kind in ("sde", "expressivity"):
        assert (out / f"{kind}.png").read_bytes().startswith(PNG)
    found = json.loads((out / "sde.json").read_text())
    assert [r["recursion"] for r in found["recursions"]] == ["theorem", "causal", "skip"]
    for recursion in found["recursions"]:
        assert [(row["width"], row["depth"]) for row in recursion["rows"]] == [(8, 1), (16, 2)]
        assert recursion["slopes"]["covariance"] < -0.5
    layers = {row["layer"] for row in json.loads((out / "expressivity.json").read_text())["rows"]}
    assert layers == {"linear", "frozen_qk", "trained", "mixit"}
    assert "wrote runs/analysis/sde.json" in capsys.readouterr().out


def test_the_text_that_is_read(
    runs: Runs,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("if $x: é\n\treturn " * 9)  # 18 bytes
    run = runs.folder("standard")
    call(monkeypatch, "subspace", run, "--text", text, "--out", tmp_path)
    found = json.loads((tmp_path / "subspace.json").read_text())
    assert found["sequences"] == f"5 sequences of 32 tokens from {text}"
    call(monkeypatch, "attention", run, "--prompt", "a $b$ é\n", "--out", tmp_path, *FEW)
    moved = shutil.copytree(run, tmp_path / "moved")
    config = json.loads((moved / "config.json").read_text())
    config["dataloader"]["dataset_path"] = "/nowhere"
    (moved / "config.json").write_text(json.dumps(config))
    with caplog.at_level(logging.WARNING):
        call(monkeypatch, "subspace", moved, "--sequences", "3")
    found = json.loads((moved / "analysis" / "subspace.json").read_text())
    assert found["sequences"] == "3 sequences of 32 tokens from the standard library"
    assert "reading the standard library instead" in caplog.text


MISTAKES = {
    "atention RUN": "unknown kind of analysis 'atention': did you mean 'attention'?",
    "attention EMPTY": "has neither the result.json of a finished task nor the checkpoint folder",
    "attention EMPTY/absent": "/absent does not exist: name the folder of a finished task or",
    "subspace WEIGHTLESS": "model.safetensors cannot be read",
    "attention NOTHING": "nothing.txt is not a directory: name the folder of a finished task or",
    "attention LSTM": "is an LSTM, which has no attention heads to analyze",
    "attention RUN --prompt abc": "--prompt is for language models",
    "attention RUN --example 30": "--example is 30: there are 30 examples, from 0",
    "attention RUN --example -1": "--example is -1",
    "attention TEXT --example 1": "--example is for tasks",
    "attention TEXT --prompt " + 33 * "x": "--prompt has 33 tokens: the model takes 1 to 32",
    "attention TEXT --prompt=": "--prompt has 0 tokens",
    "attention TEXT --prompt \udcff": "is not valid UTF-8",
    "subspace TEXT --text EMPTY/none": "none cannot be read",
    "subspace TEXT --text NOTHING": "has too little text: at least 2 tokens are needed",
    "subspace RUN --text NOTHING": "--text is for language models",
    "subspace RUN --sequences 0": "--sequences is 0",
    "subspace RUN --depths 2": "--depths is for covariance, spectrum, coordinates, not for sub",
    "spectrum RUN --depths 0 2": "--depths is (0, 2)",
    "spectrum RUN --example 2": "--example is for attention, not for spectrum: leave it out",
    "spectrum RUN --out NOTHING": "--out",
    "spectrum": "spectrum analyzes a run: name its folder, RUN_DIR",
    "sde RUN": "sde takes no run: leave out '",
    "sde --heads 2": "--heads is for expressivity, not for sde: leave it out",
    "expressivity --text NOTHING": "--text is for attention, covariance, subspace, spectrum, timel",
    "sde --widths 4 8": "--widths is (4, 8): give one or more, each at least 8",
    "sde --widths 10": "depth = ratio * width must be a positive integer, and is 2.5 at width 10",
    "sde --ratio 0": "--ratio is 0",
    "sde --paths 1": "--paths is 1",
    "expressivity --heads 0 2": "--heads is (0, 2)",
    "expressivity --seeds 0": "--seeds is 0",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_sentence(
    task_runs: Path,
    runs: Runs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    tmp_path: Path,
    line: str,
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "nothing.txt").write_text("x")
    weightless = shutil.copytree(task_runs / "mixit", tmp_path / "weightless")
    (weightless / "model.safetensors").unlink()
    places = {
        "EMPTY": tmp_path / "empty",
        "NOTHING": tmp_path / "nothing.txt",
        "WEIGHTLESS": weightless,
        "RUN": task_runs / "frozen_qk",
        "LSTM": task_runs / "lstm",
        "TEXT": runs.folder("standard"),
    }
    words = line.split(" ")
    for name, place in places.items():
        words = [word.replace(name, str(place)) for word in words]
    with pytest.raises(SystemExit) as exit_:
        call(monkeypatch, *words)
    assert exit_.value.code == 2
    output = capsys.readouterr()
    assert MISTAKES[line] in output.err and output.err.count("\n") == 1
    assert not output.out


def test_the_start_of_a_training_run_is_its_own(runs: Runs, tmp_path: Path) -> None:
    """The layers of a `random` model are where they began; so is what is built to be its start."""
    run = shutil.copytree(runs.folder("random"), tmp_path / "run")
    subject = load_analyzed_run(run, text=None, count=1)
    start = dict(subject.own_start().named_parameters())
    trained = dict(subject.model.named_parameters())
    assert list(start) == list(trained)
    for name, param in trained.items():
        assert param.equal(start[name]) == (name != "tok_embeddings.weight"), name
    config = json.loads((run / "config.json").read_text())
    config["model_spec"]["model"]["shape"]["init_std"] = {"o": "2 fan_in"}
    (run / "config.json").write_text(json.dumps(config))
    wider = load_analyzed_run(run, text=None, count=1).own_start()
    name = "layers.1.attention.wo.weight"
    torch.testing.assert_close(wider.get_parameter(name), 2 * trained[name])
