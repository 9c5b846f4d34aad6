"""The Triton kernels, in the interpreter and by the compiler: no GPU is needed for either."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mixit_titan.errors import ConfigError
from mixit_titan.kernels import gpu
from mixit_titan.kernels.tiles import COSTS, tiles
from mixit_titan.model.build import llama_config
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import VARIANTS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
OutOfResources = pytest.importorskip("triton").runtime.errors.OutOfResources
triton_noise = pytest.importorskip("mixit_titan.kernels.triton_noise")


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
    assert len(cases) > 40
    for case, both in cases.items():
        assert max(both) < (2e-2 if "bfloat16" in case else 1e-5), (case, both)


@pytest.mark.slow
def test_gradients_pass_gradcheck_in_float64(errors: dict[str, list[float]]) -> None:
    assert errors["gradcheck"] == [0.0]


@pytest.mark.slow
def test_row_means_are_those_of_torch(errors: dict[str, list[float]]) -> None:
    assert max(errors["row means"]) < 1e-6


@pytest.mark.parametrize(("form", "cure"), [("stored", "set model.mixing"), ("generated", "use")])
def test_a_gpu_with_too_little_shared_memory_is_one_sentence(
    form: str, cure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch of a kernel fails as Triton's would on a small GPU."""

    class Kernel:
        def __getitem__(self, grid: tuple[int, int]) -> Callable:
            def launch(*_: object, **__: object) -> None:
                raise OutOfResources(147456, 101376, "shared memory")

            return launch

    module = SimpleNamespace(mix=Kernel())
    monkeypatch.setitem(sys.modules, "mixit_titan.kernels.triton_mixing", module)
    v = torch.zeros(1, 8, 2, 16)
    with pytest.raises(ConfigError, match=f"147456 of shared memory .* 101376: {cure}"):
        if form == "stored":
            gpu.mix_stored(v, torch.zeros(2, 1, 128, 128), None, True, False, False)
        else:
            key, means, stds = torch.zeros(3).long(), torch.zeros(2, 8), torch.ones(2)
            flags = (True, True, False, False, False)
            gpu.mix_generated(v, key, means, stds, None, *flags)


def test_kernels_run_on_the_gpu_of_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton would take the current one, though a model may be spread over several."""
    current: list[torch.Tensor | None] = [None]
    seen = []

    @contextlib.contextmanager
    def device_of(tensor: torch.Tensor) -> Iterator[None]:
        current.append(tensor)
        yield
        current.pop()

    class Kernel:
        def __getitem__(self, grid: tuple[int, int]) -> Callable:
            return lambda *_, **__: seen.append(current[-1])

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    module = SimpleNamespace(mix=Kernel())
    monkeypatch.setitem(sys.modules, "mixit_titan.kernels.triton_mixing", module)
    monkeypatch.setattr(triton_noise, "_row_means", Kernel())
    v, key = torch.zeros(1, 8, 2, 16), torch.zeros(3).long()
    gpu.mix_stored(v, torch.zeros(2, 1, 128, 128), None, True, False, False)
    triton_noise.row_means(key, 2, 8, True, False)
    assert len(seen) == 2 and seen[0] is v and seen[1] is key


def test_heads_that_are_too_wide_are_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"width 257 are too wide .* 256: raise model\.heads"):
        tiles("stored", 257, 2, None)
    shape = Shape(width=600, layers=1, heads=2, hidden=8, vocab=8, seq_len=8)
    with pytest.raises(ConfigError, match="heads of width 300 are too wide"):
        llama_config(shape, VARIANTS["mixit"], on_gpu=True)
    llama_config(shape, VARIANTS["mixit"], on_gpu=False)


@pytest.mark.slow
def test_the_model_of_an_h100_reaches_its_bars(tmp_path: Path) -> None:
    """Modelled, with packed documents and the form that `auto` takes. The ratios are below those of
    a mixing that takes no time."""
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "h100.py", "--out", tmp_path / "out"],
        env={key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "out" / "h100.json").read_text())
    assert {kernel["source"] for kernel in found["kernels"]} == {"drawn", "stored"}
    models = [model for model in found["models"] if model["auto"] and model["bar"]]
    assert [(model["flavor"], model["length"], model["bar"]) for model in models] == [
        ("160m", 2048, 1.1),
        ("160m", 8192, 1.1),
        ("1b", 2048, 1.05),
        ("8b", 2048, 1.05),
    ]
    assert 0 < found["row_means_seconds"]["sign"] < found["row_means_seconds"]["gaussian"] < 15
    for model in models:
        assert model["bar"] <= model["ratio_to_standard"] < model["ratio_without_mixing"]


@pytest.fixture(scope="module")
def kernels() -> dict[tuple[str, str], dict]:
    """(source, name) -> what the kernel costs on an H100. In a process of its own too: here Triton
    may have been imported to interpret."""
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "sass.py", "--json"],
        env={key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {(kernel["source"], kernel["name"]): kernel for kernel in json.loads(done.stdout)}


def test_kernels_keep_to_their_budget_on_an_h100(kernels: dict[tuple[str, str], dict]) -> None:
    """With packed documents. One block an SM is enough: its accumulators are those of two, and two
    would draw each tile twice (kernels/tiles.py)."""
    budgets = {"drawn": 32, "signs": 20, "stored": 5}
    # Normals: at least the 10 of Philox, or the loop that was counted is not the one that draws.
    least = {"drawn": 15, "signs": 0.5, "stored": 1}
    names = [f"{way}, width {width}" for way in ("forward", "transposed") for width in (64, 128)]
    assert {(source, name) for source in ("drawn", "stored") for name in names} <= set(kernels)
    assert {("drawn", f"{name}, signs") for name in (*names, "row means")} <= set(kernels)
    assert ("drawn", "row means") in kernels
    for (source, name), kernel in kernels.items():
        budget = "signs" if "signs" in name else source
        cost = kernel["instructions_per_element"]
        assert least[budget] < cost <= budgets[budget], (source, name)
        assert kernel["spill_bytes"] == 0, (source, name)
        assert kernel["blocks_per_sm"] >= 1, (source, name)


def test_the_model_of_speed_knows_what_the_kernels_cost(
    kernels: dict[tuple[str, str], dict],
) -> None:
    for (source, transposed), cost in COSTS.items():
        name = f"{'transposed' if transposed else 'forward'}, width 64"
        name += ", signs" if source == "signs" else ""
        kernel = kernels["stored" if source == "stored" else "drawn", name]
        assert kernel["instructions_per_element"] == pytest.approx(cost.inside, rel=0.03)
        assert kernel["edge_instructions_per_element"] == pytest.approx(cost.edge, rel=0.03)
        assert kernel["instructions_per_group"] == pytest.approx(cost.group, rel=0.03)
