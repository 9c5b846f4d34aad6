"""The Triton kernels, in the interpreter and by the compiler: no GPU is needed for either."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


@pytest.fixture(scope="module")
def errors() -> dict[str, list[float]]:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("interpreted.py")],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_generator_is_tritons(errors: dict[str, list[float]]) -> None:
    words, numbers = errors["generator"]
    assert words == 0
    assert numbers < 1e-6


def test_kernels_agree_with_the_matrix(errors: dict[str, list[float]]) -> None:
    cases = {case: both for case, both in errors.items() if case != "generator"}
    assert len(cases) > 10
    for case, both in cases.items():
        assert max(both) < (2e-2 if "bfloat16" in case else 1e-5), (case, both)


def test_kernels_compile_for_an_h100() -> None:
    """In a process of its own too: here Triton may have been imported to interpret."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("compiled.py")],
        env={key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["_forward", "_transposed"]
