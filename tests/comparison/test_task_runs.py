"""Sweeps of a task: two keys and values and a query are 5 tokens, in batches of 64."""

import json
from pathlib import Path

import pytest

from mixit_titan.comparison.command import compare
from mixit_titan.comparison.report import as_json
from mixit_titan.comparison.runs import CannotCompare, find_folders
from mixit_titan.comparison.tables import tables
from mixit_titan.comparison.task_runs import read_task_run
from mixit_titan.model.accounting import count
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import VARIANTS
from mixit_titan.tasks.retrieval import Retrieval
from mixit_titan.tasks.settings import Run, Settings

PER_STEP = 5 * 64


def write_task(folder: Path, variant: str, *, seed: int = 0, pairs: int = 2, pace: float = 0.01,
               losses: tuple[float, float] = (2.0, 1.0)) -> Path:  # fmt: skip
    """100 steps of `pace` seconds; the first took a second more, each evaluation ten."""
    settings = Settings(
        variant=variant, width=32, layers=2, heads=2, batch=64, steps=100, seed=seed
    )
    run = Run(task=Retrieval(pairs=pairs, vocab=40), settings=settings)
    folder.mkdir(parents=True)
    lines = [{"step": 1, "loss": 3.0, "seconds": 1 + pace}]
    for n, loss in enumerate(losses, 1):
        seconds = 1 + 50 * n * pace + 10 * (n - 1)
        lines.append({"step": 50 * n, "loss": 2.0, "seconds": seconds})
        lines.append({"step": 50 * n, "test_loss": loss, "accuracy": 0.5, "seconds": seconds + 10})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = {
        "task": "retrieval",
        "variant": variant,
        "loss": losses[-1],
        "accuracy": 0.5 + seed / 4,
    }
    result |= {"exact": 0.5, "slices": {}, "trainable_params": 7, "params": 9, "steps": 100}
    result |= {"seconds": lines[-1]["seconds"], "settings": run.described()}
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def test_a_sweep_of_a_task_is_compared_by_its_test_loss(tmp_path: Path) -> None:
    for seed in range(2):
        write_task(tmp_path / f"a{seed}", "standard", seed=seed)
        write_task(tmp_path / f"b{seed}", "mixit", seed=seed, losses=(1.5, 1.2), pace=0.005)
    comparison = compare(find_folders([str(tmp_path)]))
    found = as_json(comparison)
    assert (found["loss"], found["unit"]) == ("test_loss", "nats per answer")
    standard, mixit = found["groups"]
    assert standard["accuracy"]["values"] == [0.5, 0.75]
    assert found["budgets"]["tokens"] == standard["curve"]["tokens"][-1] == 100 * PER_STEP
    # 40 values and keys, and a token that fills up.
    shape = Shape(width=32, layers=2, heads=2, hidden=128, vocab=41, seq_len=5, bias=True)
    each = {name: count(shape, VARIANTS[name]).flops_per_token for name in ("standard", "mixit")}
    assert standard["flops"] == each["standard"] * 100 * PER_STEP
    assert mixit["flops"] == each["mixit"] * 100 * PER_STEP
    # Neither the evaluations nor what the first step compiled.
    assert standard["curve"]["seconds"] == pytest.approx([0.5, 1.0])
    assert mixit["seconds"] == pytest.approx(0.5)
    assert found["best"]["tokens"] == "standard" and found["best"]["seconds"] == "mixit"
    (_, header, rows), *_ = tables(comparison)
    assert header[-1] == "accuracy" and rows[1][-1] == "0.625 ± 1.588"


def test_another_difficulty_is_another_task(tmp_path: Path) -> None:
    folders = [write_task(tmp_path / name, name) for name in ("standard", "mixit")]
    harder = write_task(tmp_path / "harder", "mixit", pairs=3)
    left_out = compare([harder, *folders]).left_out  # wherever it is named
    assert left_out[str(harder)].startswith("is not of the same task at the same difficulty")


def test_what_is_best_takes_two(tmp_path: Path) -> None:
    """In the time of mixit's run standard had not come to its first evaluation."""
    folders = [
        write_task(tmp_path / "a", "standard", pace=0.1),
        write_task(tmp_path / "b", "mixit"),
    ]
    comparison = compare(folders)
    assert as_json(comparison)["best"]["seconds"] is None
    (_, _, rows), *_ = tables(comparison)
    assert [row[4] for row in rows[1:]] == ["-", "1.000", "-"]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("variant", "lstm", "FLOPs of 'lstm' are not counted"),
        ("task", "mine:Task", "not part of mixit_titan"),
        ("width", "wide", "result.json"),
    ],
)
def test_what_cannot_be_compared_is_said(tmp_path: Path, key: str, value: str, said: str) -> None:
    folder = write_task(tmp_path / "a", "standard")
    result = json.loads((folder / "result.json").read_text())
    result["settings"][key] = value
    (folder / "result.json").write_text(json.dumps(result))
    with pytest.raises(CannotCompare, match=said):
        read_task_run(folder)


def test_an_unfinished_point_of_a_sweep_is_named(tmp_path: Path) -> None:
    for name in ("standard", "mixit", "random"):
        write_task(tmp_path / name, name)
    (tmp_path / "random" / "result.json").unlink()
    found = compare(find_folders([str(tmp_path)]))
    assert "neither config.json nor result.json" in found.left_out[str(tmp_path / "random")]
