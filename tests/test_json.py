"""JSON that any program can read: no NaN in it."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import mixit_titan
from mixit_titan.files import json_text, write_json
from mixit_titan.runtime.metrics import JsonLinesLogger, read_metrics

PACKAGE = Path(mixit_titan.__file__).parent


def refuse(name: str) -> float:
    raise AssertionError(f"{name} is not JSON")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float64("nan")])
def test_what_is_not_finite_is_null(tmp_path: Path, value: float) -> None:
    write_json(tmp_path / "a.json", {"a": [1, (value, 2.5)], "b": {"c": value}, "d": "NaN"})
    found = json.loads((tmp_path / "a.json").read_text(), parse_constant=refuse)
    assert found == {"a": [1, [None, 2.5]], "b": {"c": None}, "d": "NaN"}


def test_what_is_finite_is_as_python_writes_it() -> None:
    value = {"b": [1.5, 1e300, True, None, "\u00e9"], "a": (1, 2)}
    assert json_text(value) == json.dumps(value)
    assert json_text(value, sort_keys=True, indent=2) == json.dumps(value, sort_keys=True, indent=2)


def test_metrics_that_are_not_finite_are_null(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    names = ("loss", "perplexity", "bits_per_byte", "tokens")
    metrics = {f"validation_metrics/{name}": math.nan for name in names}
    for step in (1, 2):  # the second time, what was there before is read and written anew
        JsonLinesLogger(file, world_size=1).log(metrics, step)
    lines = [json.loads(line, parse_constant=refuse) for line in file.read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2] == [x["step"] for x in read_metrics(file)]
    assert all(line["validation_loss"] is None for line in lines)


def test_json_is_written_in_one_place() -> None:
    """Beside it, only what our own processes tell each other, and want back as it was; json_form
    tries whether what it has read can be written."""
    users = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if re.search(r"\bjson\.dumps?\(", file.read_text())
    }
    assert users == {"files.py", "json_form.py", "runtime/watch.py", "gpu_check/process.py"}
