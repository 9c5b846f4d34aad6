"""Float8 in the linears of the layers. What needs torchao is skipped where it is not installed: pip
install -c constraints.txt -e '.[dev,float8]'."""

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torchtitan.tools import utils

from mixit_titan.config.run import load_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.errors import ConfigError
from mixit_titan.model import quantize as module
from mixit_titan.model.build import llama_config
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.quantize import check_float8, quantize
from mixit_titan.model.recipes import find_recipe
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import find_variant

needs_torchao = pytest.mark.skipif(
    importlib.util.find_spec("torchao") is None, reason="torchao is not installed"
)
SHAPE = Shape(layers=2, width=32, hidden=48, heads=2, vocab=64, seq_len=8)


@pytest.fixture
def float8_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that has float8, and torchao."""
    monkeypatch.setattr(module, "Float8Linear", object)
    monkeypatch.setattr(module, "has_gpu", lambda: True)
    monkeypatch.setattr(utils, "has_cuda_capability", lambda *_: True)


def check(**changed: bool) -> None:
    settings = {"emulate": False, "compiled": True, "on_gpu": True}
    check_float8("rowwise", **(settings | changed))


def test_a_gpu_with_float8_and_a_compiled_model_will_do(float8_gpu: None) -> None:
    check()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"on_gpu": False}, "needs a GPU with float8, and this machine has none"),
        ({"compiled": False}, "set compile.enable = true"),
        ({"emulate": True}, "quantize.emulate is for eager runs: set compile.enable = false"),
    ],
)
def test_where_it_would_not_run_is_one_sentence(
    float8_gpu: None, changed: dict[str, bool], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        check(**changed)


def test_an_older_gpu_is_one_sentence(float8_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utils, "has_cuda_capability", lambda *needed: needed <= (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA A100-SXM4-80GB")
    with pytest.raises(ConfigError, match=r"8\.9 or higher.*this one is NVIDIA A100-SXM4-80GB"):
        check()


def test_a_login_node_need_not_have_it(float8_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_gpu", lambda: False)
    check()
    config = llama_config(SHAPE, find_variant("standard"))
    assert quantize(config, "rowwise", emulate=False, compiled=True).float8 == "rowwise"


@pytest.mark.parametrize("installed", [False, True])
def test_torchao_that_is_missing_or_broken_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    monkeypatch.setattr(module, "Float8Linear", None)
    found = SimpleNamespace() if installed else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    said = "does not work with torch" if installed else "is not installed: pip install"
    config = str(shipped_configs()["debug_mixit"])
    with pytest.raises(ConfigError, match=f"needs the package torchao, which {said}") as error:
        load_run(config, ["--quantize.recipe", "rowwise"], world_size=1)
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    assert re.search(r"pip install .*?(?=, or)", str(error.value))[0] in page


def emulated(variant: str, recipe: str = "paper", **shape: int) -> MixitLlama.Config:
    shape = Shape(**(vars(SHAPE) | shape))
    config = llama_config(shape, find_variant(variant), find_recipe(recipe))
    return quantize(config, "rowwise", emulate=True, compiled=False)


@needs_torchao
@pytest.mark.parametrize(("variant", "mixer"), [("random", 4), ("mixit", 2)])
def test_all_linears_of_the_layers_and_not_the_head(variant: str, mixer: int) -> None:
    model = emulated(variant).build()
    linears = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    plain = [name for name, m in linears.items() if not isinstance(m, module.Float8Linear)]
    assert plain == ["lm_head"]
    assert len(linears) == 1 + SHAPE.layers * (mixer + 3)


@needs_torchao
def test_a_width_that_the_hardware_has_not_is_left_alone() -> None:
    model = emulated("standard", hidden=40).build()  # no multiple of 16
    block = model.layers["0"]
    assert isinstance(block.attention.wo, module.Float8Linear)
    assert not isinstance(block.feed_forward.w1, module.Float8Linear)
    with pytest.raises(ConfigError, match=r"multiples of 16, and model\.width is 36"):
        emulated("standard", width=36, hidden=40)


def rounded(x: np.ndarray, axis: int) -> np.ndarray:
    """As e4m3 with a scale for each row that is a power of two: 3 bits behind the leading one, of
    numbers up to 448, and not below 2^-9."""
    scale = 2.0 ** np.floor(np.log2(448 / np.abs(x).max(axis, keepdims=True)))
    exponent = np.maximum(np.floor(np.log2(np.abs(x * scale) + 1e-30)), -6)
    step = 2.0 ** (exponent - 3)
    return np.round(x * scale / step) * step / scale


@needs_torchao
@pytest.mark.parametrize("recipe", ["paper", "official"])
def test_products_are_of_rounded_factors(recipe: str) -> None:
    """The official recipe scales what a linear gives, which torchtitan's converter forgets."""
    model = emulated("mixit", recipe).build()
    model.init_states()
    w1 = model.layers["1"].feed_forward.w1
    x = torch.randn(6, SHAPE.width, generator=torch.Generator().manual_seed(0))
    weight = w1.weight.detach().double().numpy()
    factor = find_recipe(recipe).linear_factor(SHAPE.width)
    assert (factor != 1) == (recipe == "official")
    exact = factor * x.double().numpy() @ weight.T
    expected = factor * rounded(x.double().numpy(), 1) @ rounded(weight, 1).T
    ours = w1(x).detach().numpy()
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    assert np.abs(ours - exact).max() > 1e-3 * np.abs(exact).max()  # it was rounded at all


@needs_torchao
@pytest.mark.parametrize("frozen", [False, True])
def test_compiled_the_gradient_of_a_frozen_weight_is_not_computed(frozen: bool) -> None:
    """torchao's backward computes it whether it is needed or not. What is counted are the products
    of the graphs that torch.compile makes: that is why `[quantize]` asks for it."""
    from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd

    products = []

    def count(graph: torch.fx.GraphModule, inputs: list) -> object:
        products.append(sum("mm" in str(node.target) for node in graph.graph.nodes))
        return make_boxed_func(graph.forward)

    w1 = emulated("standard").build().layers["0"].feed_forward.w1
    w1.weight.data.normal_()
    w1.weight.requires_grad_(not frozen)
    partition = min_cut_rematerialization_partition
    backend = aot_autograd(fw_compiler=count, bw_compiler=count, partition_fn=partition)
    torch._dynamo.reset()
    x = torch.randn(4, SHAPE.width, requires_grad=True)
    torch.compile(w1, backend=backend)(x).sum().backward()
    assert products == [1, 1 if frozen else 2]
    assert x.grad is not None and (w1.weight.grad is None) == frozen
