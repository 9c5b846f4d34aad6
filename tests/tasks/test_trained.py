"""The model of a finished task comes back from its folder."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mixit_titan.errors import ConfigError
from mixit_titan.tasks.evaluation import evaluate
from mixit_titan.tasks.trained import load_trained_task
from tests.tasks.conftest import make_run

Fit = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("words", ["--variant mixit", "--variant standard --freeze v norm"])
def test_it_scores_as_its_result_says(fit: Fit, tmp_path: Path, words: str) -> None:
    run = make_run("retrieval", f"--pairs 3 --vocab 12 --test 40 {words}")
    result = fit(run)
    again, model = load_trained_task(tmp_path / "run")
    assert again == run
    _, test = run.task.split(seed=0, train=0, test=40)
    plain = torch.autocast("cpu", enabled=False)
    score = evaluate(model, test, torch.device("cpu"), plain)
    assert score.loss == pytest.approx(result["loss"]) and score.accuracy == result["accuracy"]


def test_what_is_missing_or_broken_is_one_sentence(fit: Fit, tmp_path: Path) -> None:
    fit(make_run("retrieval", "--pairs 3 --vocab 12 --test 40"))
    good = tmp_path / "run"

    def broken(name: str, text: bytes | None) -> Path:
        folder = shutil.copytree(good, tmp_path / str(len(list(tmp_path.iterdir()))))
        (folder / name).unlink()
        if text is not None:
            (folder / name).write_bytes(text)
        return folder

    result = json.loads((good / "result.json").read_text())
    wider = json.dumps(result | {"settings": result["settings"] | {"width": 32}}).encode()
    stranger = json.dumps(result | {"settings": result["settings"] | {"colour": 1}}).encode()
    for name, text, message in (
        ("result.json", None, "has no result.json"),
        ("result.json", b"{", "is not JSON"),
        ("result.json", b"\xff\xfe", "is not UTF-8"),
        ("result.json", b"[1]", "it is a list, and not an object"),
        ("result.json", b"{}", "there is no "),
        ("result.json", stranger, "colour"),
        ("result.json", wider, "does not fit the settings"),
        ("model.safetensors", None, "cannot be read"),
        ("model.safetensors", b"short", "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            load_trained_task(broken(name, text))
        assert "\n" not in str(caught.value)
