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


@pytest.mark.slow
def test_the_generator_is_tritons(errors: dict[str, list[float]]) -> None:
    words, numbers = errors["generator"]
    assert words == 0
    assert numbers < 1e-6


@pytest.mark.slow
def test_kernels_agree_with_the_matrix(errors: dict[str, list[float]]) -> None:
    cases = {case: both for case, both in errors.items() if ": " in case}
    assert len(cases) > 30
    for case, both in cases.items():
        assert max(both) < (2e-2 if "bfloat16" in case else 1e-5), (case, both)


@pytest.mark.slow
def test_gradients_pass_gradcheck_in_float64(errors: dict[str, list[float]]) -> None:
    assert errors["gradcheck"] == [0.0]


@pytest.mark.slow
def test_row_means_are_those_of_torch(errors: dict[str, list[float]]) -> None:
    assert max(errors["row means"]) < 1e-6


@pytest.fixture(scope="module")
def kernels() -> dict[tuple[str, str], dict]:
    """(source, name) -> what the kernel costs on an H100. In a process of its own too: here Triton
    may have been imported to interpret."""
    done = subprocess.run(
        [sys.executable, Path(__file__).parents[2] / "benchmarks" / "sass.py", "--json"],
        env={key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {(kernel["source"], kernel["name"]): kernel for kernel in json.loads(done.stdout)}


def test_kernels_keep_to_their_budget_on_an_h100(kernels: dict[tuple[str, str], dict]) -> None:
    """With packed documents. One block an SM is enough: its accumulators are those of two, and two
    would draw each tile twice (kernels/gpu.py)."""
    budgets = {"drawn": 32, "stored": 5}
    names = [f"{way}, width {width}" for way in ("forward", "transposed") for width in (64, 128)]
    assert {(source, name) for source in budgets for name in names} <= set(kernels)
    assert ("drawn", "row means") in kernels
    for (source, name), kernel in kernels.items():
        # At least the 10 of Philox, or the loop that was counted is not the one that draws.
        least = {"drawn": 15, "stored": 1}[source]
        assert least < kernel["instructions_per_element"] <= budgets[source], (source, name)
        assert kernel["spill_bytes"] == 0, (source, name)
        assert kernel["blocks_per_sm"] >= 1, (source, name)
