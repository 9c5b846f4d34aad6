"""A step of the benchmark is a step of the trainer, and does no work for what is frozen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.utils.flop_counter import FlopCounterMode

from mixit_titan.bench.arguments import read_arguments
from mixit_titan.bench.measure import WallClock
from mixit_titan.bench.runs import read_point
from mixit_titan.bench.settings import Point
from mixit_titan.bench.steps import PHASES, PlainSteps, Steps, TrainerSteps, build_steps
from mixit_titan.config.run import load_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.model.variants import VARIANTS
from mixit_titan.runtime.metrics import read_metrics
from tests.bench.conftest import make_point
from tests.forkserver import Forkserver
from tests.runtime.capture import FAKE, RANKS, emulate

pytestmark = pytest.mark.usefixtures("one_rank")

MIXIT = str(shipped_configs()["debug_mixit"])
# Rows of several documents, two microbatches of two rows, the loss in four chunks.
RUN = "--model.width 32 --model.layers 2 --model.hidden 64 --model.vocab 48 --model.seq_len 1024 "
RUN += "--loss.num_chunks 4 --training.local_batch_size 2 --training.global_batch_size 4"


def weights(steps: Steps) -> dict[str, torch.nn.Parameter]:
    model = steps.model if isinstance(steps, PlainSteps) else steps.trainer.model_parts[0]
    return dict(model.named_parameters())


@pytest.mark.parametrize("variant", ["frozen_qk", "mixit"])
def test_the_losses_are_those_of_train(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchtitan.trainer.time.sleep", lambda seconds: None)  # after the last
    words = [*RUN.split(), "--model.variant", variant, "--data.path", "synthetic"]
    words += ["--training.steps", "60", "--metrics.log_freq", "1", "--validator.rows", "2"]
    run = load_run(MIXIT, [*words, "--dump_folder", str(tmp_path / "run")], world_size=1)
    trainer = run.build()
    monkeypatch.setattr(trainer, "should_continue_training", lambda: trainer.step < 3)
    trainer.train()
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    trained = [(line["loss"], line["grad_norm"]) for line in lines if "loss" in line]

    measured = []
    point = read_point(read_arguments([MIXIT, *RUN.split()]), ranks=1)
    steps = build_steps(variant, point, tmp_path)
    monkeypatch.setattr(steps.trainer.metrics_processor, "should_log", lambda step: True)
    monkeypatch.setattr(
        steps.trainer.metrics_processor,
        "log",
        lambda step, loss, highest, norm, extra_metrics: measured.append((loss, norm)),
    )
    for _ in range(3):
        steps.step(WallClock())
    assert len(trained) == 3 and measured == trained


@pytest.mark.parametrize("variant", [*VARIANTS, "plain"])
def test_a_step_moves_what_is_trained_and_nothing_else(
    variant: str, point: Point, tmp_path: Path
) -> None:
    steps = build_steps(variant, point, tmp_path)
    before = {name: param.detach().clone() for name, param in weights(steps).items()}
    steps.step(clock := WallClock(), microbatches=2)
    assert set(clock.read()) == set(PHASES) and all(s > 0 for s in clock.read().values())
    for name, param in weights(steps).items():
        assert torch.equal(param, before[name]) != param.requires_grad, name
        assert param.requires_grad or param.grad is None
    steps.close()


def test_a_step_accumulates_as_many_microbatches_as_it_is_told(tmp_path: Path) -> None:
    steps = build_steps("standard", make_point("--batch 1"), tmp_path)
    calls: list[int] = []
    passes = steps.passes

    def counted(**batch: Any) -> torch.Tensor:
        calls.append(len(batch["labels"]))
        return passes(**batch)

    steps.passes = counted
    steps.step(WallClock(), microbatches=3)
    steps.step(WallClock())
    assert calls == [1] * 4


def test_in_bfloat16_trained_weights_are_float32_and_frozen_matrices_are_not(
    tmp_path: Path,
) -> None:
    steps = build_steps("frozen_mlp", make_point("--dtype bfloat16"), tmp_path)
    steps.step(WallClock())
    for name, param in weights(steps).items():
        expected = torch.bfloat16 if ".feed_forward." in name else torch.float32
        assert param.dtype == expected, name


def received(steps: TrainerSteps, module: torch.nn.Module) -> list[tuple[Any, dict[str, Any]]]:
    """The arguments that a module is called with in a step."""
    calls: list[tuple[Any, dict[str, Any]]] = []
    hook = module.register_forward_pre_hook(
        lambda module, args, kwargs: calls.append((args, kwargs)), with_kwargs=True
    )
    steps.step(WallClock())
    hook.remove()
    return calls


def test_documents_are_positions_that_restart(tmp_path: Path) -> None:
    for documents in ("on", "off"):
        # Half of the documents have fewer than 600 tokens: some begin within four rows of 1024.
        point = make_point(f"--seq-len 1024 --batch 4 --layers 1 --documents {documents}")
        steps = build_steps("mixit", point, tmp_path / documents)
        ((_, given),) = received(steps, steps.trainer.model_parts[0])
        positions = given.get("positions")
        restarts = positions is not None and bool((positions[:, 1:] == 0).any())
        assert restarts == point.documents == (documents == "on")


@pytest.mark.parametrize("chunks", [1, 4])
def test_the_head_works_in_chunks(chunks: int, tmp_path: Path) -> None:
    steps = build_steps("standard", make_point(f"--chunks {chunks}"), tmp_path)
    calls = received(steps, steps.trainer.model_parts[0].lm_head)
    assert [tuple(args[0].shape) for args, _ in calls] == [(2, 16 // chunks, 32)] * chunks


@pytest.mark.parametrize("ac", ["none", "selective", "full"])
def test_activations_are_recomputed_as_the_trainer_does_it(ac: str, tmp_path: Path) -> None:
    steps = build_steps("standard", make_point(f"--ac {ac}"), tmp_path)
    wrapped = [n for n in weights(steps) if "_checkpoint_wrapped_module" in n]
    assert bool(wrapped) == (ac != "none")


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
def test_no_weight_gradient_is_computed_for_what_is_frozen(
    variant: str, point: Point, tmp_path: Path
) -> None:
    steps = build_steps(variant, point, tmp_path)
    with FlopCounterMode(display=False) as counter:
        steps.step(WallClock())
    counted = counter.get_flop_counts()["Global"]
    matrices = sum(counted.get(op, 0) for op in (torch.ops.aten.mm, torch.ops.aten.addmm))
    head = 6 * point.tokens * point.shape.width * point.shape.vocab
    assert matrices == matrix_flops(variant, point) + head


@pytest.mark.parametrize(("bias", "again"), [("false", 1), ("true", 0)])
def test_selective_recomputation_repeats_no_product_with_a_bias(
    bias: str, again: int, tmp_path: Path
) -> None:
    """torchtitan's drops every other product, but counts none that adds a bias."""
    point, flops = make_point(f"--model.bias {bias}"), {}
    for ac in ("none", "selective"):
        steps = build_steps("standard", make_point(f"--model.bias {bias} --ac {ac}"), tmp_path / ac)
        with FlopCounterMode(display=False) as counter:
            steps.step(WallClock())
        counted = counter.get_flop_counts()["Global"]
        flops[ac] = sum(counted.get(op, 0) for op in (torch.ops.aten.mm, torch.ops.aten.addmm))
    n, h = point.shape.width, point.shape.hidden
    repeated = 2 * (2 * n * n + n * h)  # wk, wo, w3
    assert flops["selective"] - flops["none"] == (
        again * point.tokens * point.shape.layers * repeated
    )


COMPILED: list[int] = []
"""FLOPs of the products of each compiled graph that was run."""


def count_products(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable:
    flops = 0
    for node in graph.graph.nodes:
        if node.target is torch.ops.aten.mm.default:
            a, b = (node.args[i].meta["val"].shape for i in (0, 1))
            flops += 2 * a[0] * a[1] * b[1]

    def run(*arguments: torch.Tensor) -> Any:
        COMPILED.append(flops)
        return graph(*arguments)

    return make_boxed_func(run)


torch._dynamo.register_backend(
    aot_autograd(fw_compiler=count_products, bw_compiler=count_products), name="count_products"
)


@pytest.mark.parametrize("variant", ["frozen_qk", "frozen_mlp", "random"])
def test_nor_in_compiled_graphs(variant: str, tmp_path: Path) -> None:
    """The graphs that torch.compile makes, run as they are, without generating code."""
    torch._dynamo.reset()
    COMPILED.clear()
    settings = "--compile on --compile.backend count_products --compile.components model"
    point = make_point(settings)
    build_steps(variant, point, tmp_path).step(WallClock())
    assert len(COMPILED) == 2 * point.shape.layers  # forward and backward
    assert sum(COMPILED) == matrix_flops(variant, point)


def test_the_passes_of_a_step_can_be_captured(tmp_path: Path, forkserver: Forkserver) -> None:
    with forkserver.start(bench_captured, tmp_path) as process:
        process.wait(300)
        assert (tmp_path / "captured").exists(), process.output()


def bench_captured(folder: Path) -> None:
    emulate(folder)
    point = make_point(f"--chunks 4 --ac selective {' '.join(FAKE[:2])}", ranks=RANKS)
    steps = build_steps("frozen_qk", point, folder / "run")
    for _ in range(2):
        steps.step(WallClock())
