"""The steps train, and do no work for what is frozen."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.utils.flop_counter import FlopCounterMode

from mixit_titan.bench.measure import WallClock
from mixit_titan.bench.settings import Point
from mixit_titan.bench.steps import PHASES, Steps
from mixit_titan.model.variants import VARIANTS


@pytest.mark.parametrize("variant", [*VARIANTS, "plain"])
def test_a_step_moves_what_is_trained_and_nothing_else(variant: str, point: Point) -> None:
    steps = Steps(variant, point)
    before = copy.deepcopy(dict(steps.model.named_parameters()))
    steps.step(clock := WallClock(), batches=2)
    assert set(clock.read()) == set(PHASES) and all(s > 0 for s in clock.read().values())
    for name, param in steps.model.named_parameters():
        assert torch.equal(param, before[name]) != param.requires_grad, name
        assert param.grad is None


def test_in_bfloat16_trained_weights_are_float32_and_frozen_matrices_are_not(point: Point) -> None:
    steps = Steps("frozen_mlp", dataclasses.replace(point, dtype="bfloat16"))
    steps.step(WallClock())
    for name, param in steps.model.named_parameters():
        expected = torch.bfloat16 if ".feed_forward." in name else torch.float32
        assert param.dtype == expected, name


def matrix_flops(variant: str, point: Point) -> int:
    """Of the layers in one step: 2P forward, 2P for the input's gradient, 2P for the weight's."""
    n, h = point.shape.width, point.shape.hidden
    parts = {"qk": 2 * n * n, "v": n * n, "o": n * n, "mlp": 3 * n * h}
    if variant == "mixit":
        del parts["qk"]
    frozen = VARIANTS[variant].frozen
    per_layer = sum((4 if part in frozen else 6) * size for part, size in parts.items())
    return point.tokens * point.shape.layers * per_layer


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_weight_gradient_is_computed_for_what_is_frozen(variant: str, point: Point) -> None:
    steps = Steps(variant, point)
    with FlopCounterMode(display=False) as counter:
        steps.step(WallClock())
    counted = counter.get_flop_counts()["Global"]
    matrices = sum(counted.get(op, 0) for op in (torch.ops.aten.mm, torch.ops.aten.addmm))
    head = 6 * point.tokens * point.shape.width * point.shape.vocab
    assert matrices == matrix_flops(variant, point) + head


@pytest.mark.parametrize("variant", ["frozen_qk", "frozen_mlp", "random"])
def test_nor_in_compiled_graphs(variant: str, point: Point) -> None:
    """The graphs that torch.compile makes, run as they are, without generating code."""
    done = []

    def count_products(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable:
        flops = 0
        for node in graph.graph.nodes:
            if node.target is torch.ops.aten.mm.default:
                a, b = (node.args[i].meta["val"].shape for i in (0, 1))
                flops += 2 * a[0] * a[1] * b[1]

        def run(*arguments: torch.Tensor) -> Any:
            done.append(flops)
            return graph(*arguments)

        return make_boxed_func(run)

    torch._dynamo.reset()
    steps = Steps(variant, point)
    backend = aot_autograd(fw_compiler=count_products, bw_compiler=count_products)
    for block in steps.model.layers.values():
        block.compile(backend=backend, fullgraph=True)
    steps.step(WallClock())
    assert len(done) == 2 * point.shape.layers  # forward and backward
    assert sum(done) == matrix_flops(variant, point)
