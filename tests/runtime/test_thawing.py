"""Groups of weights with a rate of their own, and weights that are frozen for a part of a run."""

import re
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

from mixit_titan.config.groups import read_groups
from mixit_titan.config.plan import plan_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.model.build import llama_config
from mixit_titan.model.freezing import freeze
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.runtime.optimizer import Optimizers, optimizer_config
from mixit_titan.runtime.tensor_reader import load_tensors, tensor_sizes
from mixit_titan.runtime.trainer import MixitTrainer

from .conftest import SMALL, STEPS, Runs
from .test_parallelism import PIPELINE, SKIP, TENSOR
from .test_training import COMPILED, assert_same

STANDARD = str(shipped_configs()["debug_standard"])
THAWED, FROZEN = 8, 14
MLP = f'{{parts = "mlp", freeze_until = {THAWED}}}'
HEAD = f'{{parts = "head", freeze_after = {FROZEN}, lr_factor = 0.5}}'
BOTH = ["--optimizer.groups", f"[{MLP}, {HEAD}]"]
OFTEN = ["--checkpoint.interval", "2", "--checkpoint.keep_latest_k", "0"]
MUON = [*BOTH, "--optimizer.name", "Muon"]
STACK = "learned frozen_qk"
PLACES = [
    "--optimizer.groups",
    f'[{{parts = "v@0 mlp@1", freeze_until = {THAWED}}}, {{parts = "head norm", freeze_after = '
    f'{FROZEN}, lr_factor = 0.5}}, {{parts = "matrix", lr_factor = 0.1, weight_decay = 0.0}}]',
]


def until(step: int) -> list[str]:
    return ["--training.steps", str(step), "--lr_scheduler.total_steps", str(STEPS)]


def weights(run: Path, step: int, part: str) -> dict[str, torch.Tensor]:
    checkpoint = run / "checkpoint" / f"step-{step}"
    sizes = tensor_sizes(checkpoint)
    found = {n: torch.empty(size) for n, size in sizes.items() if re.match(part, n)}
    load_tensors(checkpoint, found)
    return found


def states(run: Path, step: int) -> set[str]:
    """The weights whose optimizer state is in a checkpoint."""
    checkpoint = str(run / "checkpoint" / f"step-{step}")
    keys = dcp.FileSystemReader(checkpoint).read_metadata().state_dict_metadata
    return {key.split(".state.")[1].removesuffix(".exp_avg") for key in keys if "exp_avg" in key}


@pytest.fixture(scope="module")
def thawed(runs: Runs) -> Runs:
    runs.train(
        1,
        {
            "thaw": ("standard", [*BOTH, *OFTEN]),
            "thaw_mlp": ("standard", ["--optimizer.groups", f"[{MLP}]"]),
            "thaw_head": ("standard", ["--optimizer.groups", f"[{HEAD}]".replace("0.5", "1.0")]),
        },
    )
    return runs


def test_until_it_thaws_a_run_is_that_of_the_variant_bit_for_bit(thawed: Runs) -> None:
    ours, theirs = thawed.losses("thaw_mlp"), thawed.losses("frozen_mlp")
    assert ours[: THAWED + 1] == theirs[: THAWED + 1]  # a loss is from before its step
    assert all(a != b for a, b in zip(ours[THAWED + 2 :], theirs[THAWED + 2 :], strict=True))
    ours, theirs = thawed.losses("thaw_head"), thawed.losses("standard")
    assert ours[: FROZEN + 1] == theirs[: FROZEN + 1]
    assert all(a != b for a, b in zip(ours[FROZEN + 2 :], theirs[FROZEN + 2 :], strict=True))


def test_frozen_weights_do_not_move_and_thawed_ones_do(thawed: Runs) -> None:
    mlp, head = r"layers\.\d\.feed_forward", r"lm_head"
    run, variant = thawed.folder("thaw"), thawed.folder("frozen_mlp")
    first = weights(variant, STEPS, mlp)  # as they were drawn
    moved = {step: weights(run, step, mlp) for step in (2, THAWED, THAWED + 2, THAWED + 4)}
    heads = {step: weights(run, step, head) for step in (2, FROZEN - 2, FROZEN, FROZEN + 2, STEPS)}
    assert len(first) == 6
    for name, start in first.items():
        assert torch.equal(moved[2][name], start) and torch.equal(moved[THAWED][name], start)
        assert not torch.equal(moved[THAWED + 2][name], start)
        assert not torch.equal(moved[THAWED + 4][name], moved[THAWED + 2][name])
    kept = heads[FROZEN]["lm_head.weight"]
    for step, there in heads.items():
        assert torch.equal(there["lm_head.weight"], kept) == (step >= FROZEN)


def test_optimizer_state_comes_and_goes(thawed: Runs) -> None:
    run = thawed.folder("thaw")
    everything = set(weights(run, 2, r"layers|tok_|norm\.|lm_head"))
    mlp = {name for name in everything if "feed_forward" in name}
    assert len(mlp) == 6
    for step in range(2, STEPS + 1, 2):
        absent = (mlp if step <= THAWED else set()) | (
            {"lm_head.weight"} if step > FROZEN else set()
        )
        assert {n for n in states(run, step) if not n.endswith("_sq")} == everything - absent, step


def test_the_log_says_what_is_trained(thawed: Runs) -> None:
    lines = read_metrics(thawed.folder("thaw") / "metrics.jsonl")
    mlp, head = 2 * 3 * 32 * 64, 320 * 32
    total = lines[THAWED]["trained_params"]
    assert [line["trained_params"] for line in lines] == [
        total - (mlp if step <= THAWED else 0) - (head if step > FROZEN else 0)
        for step in range(1, STEPS + 1)
    ]
    assert "trained_params" not in read_metrics(thawed.folder("standard") / "metrics.jsonl")[0]
    # The rate of a run is that of what no group names.
    rates = [
        [line["lr"] for line in read_metrics(thawed.folder(n) / "metrics.jsonl")]
        for n in ("thaw", "standard")
    ]
    assert rates[0] == rates[1]


def test_a_resumed_run_gives_the_same_bits(thawed: Runs) -> None:
    """Stopped before, at and after the steps where what is trained changes."""
    stops = [THAWED - 1, THAWED, THAWED + 1, FROZEN, FROZEN + 1]
    cut = {f"thaw_cut_{stop}": ("standard", [*BOTH, *until(stop)]) for stop in stops}
    thawed.train(1, cut)
    thawed.train(1, {name: ("standard", BOTH) for name in cut})
    for name in cut:
        assert thawed.losses(name) == thawed.losses("thaw"), name


def test_the_losses_are_those_of_one_rank(thawed: Runs) -> None:
    thawed.train(2, {"thaw_2": ("standard", BOTH), "thaw_2_to_1": ("standard", [*BOTH, *until(8)])})
    thawed.train(1, {"thaw_2_to_1": ("standard", BOTH)})
    for name in ("thaw_2", "thaw_2_to_1"):
        assert_same(thawed.losses(name), thawed.losses("thaw"), 1e-4)


def test_layers_of_several_mixers_thaw_and_resume(thawed: Runs) -> None:
    """Of a stack, parts at several places: on two ranks with the same bits, on another number of
    ranks with the same losses."""
    stops = {f"thaw_stack_cut_{stop}": until(stop) for stop in (THAWED, FROZEN + 1)}
    begun = {"thaw_stack_1_to_2": (STACK, [*PLACES, *until(THAWED)])}
    thawed.train(1, {"thaw_stack": (STACK, PLACES)} | begun)
    thawed.train(
        2,
        {name: (STACK, [*PLACES, *own]) for name, own in stops.items()}
        | {"thaw_stack_2": (STACK, PLACES), "thaw_stack_1_to_2": (STACK, PLACES)},
    )
    thawed.train(2, {name: (STACK, PLACES) for name in stops})
    for name in stops:
        assert thawed.losses(name) == thawed.losses("thaw_stack_2"), name
    for name in ("thaw_stack_2", "thaw_stack_1_to_2"):
        assert_same(thawed.losses(name), thawed.losses("thaw_stack"), 1e-4)


@pytest.mark.slow
def test_the_losses_are_those_of_one_rank_however_the_model_is_split(thawed: Runs) -> None:
    """Of a pipeline, one stage has no weight of a group."""
    two = {"thaw_tensor": [*TENSOR, *SKIP], "thaw_pipeline": [*PIPELINE, *SKIP]}
    two["thaw_2_compiled"] = COMPILED
    thawed.train(2, {name: ("standard", [*BOTH, *own]) for name, own in two.items()})
    for name in two:
        assert_same(thawed.losses(name), thawed.losses("thaw"), 1e-4)


def test_muon_thaws_and_resumes(thawed: Runs) -> None:
    cut = ("standard", [*MUON, *until(THAWED)])
    thawed.train(1, {"thaw_muon": ("standard", MUON), "thaw_muon_cut": cut})
    thawed.train(1, {"thaw_muon_cut": ("standard", MUON)})
    assert thawed.losses("thaw_muon_cut") == thawed.losses("thaw_muon")


@pytest.mark.slow
def test_muon_thaws_on_two_ranks(thawed: Runs) -> None:
    thawed.train(1, {"thaw_muon_1": ("standard", MUON)})
    thawed.train(2, {"thaw_muon_2": ("standard", MUON)})
    assert_same(thawed.losses("thaw_muon_2"), thawed.losses("thaw_muon_1"), 3e-4)


def test_groups_may_change_when_a_run_is_resumed(thawed: Runs) -> None:
    """Also to none: what the checkpoint has no state of begins with a new one."""
    thawed.train(1, {"thaw_changed": ("standard", [*BOTH, *until(6)])})
    thawed.train(1, {"thaw_changed": ("standard", [])})
    assert thawed.losses("thaw_changed")[:7] == thawed.losses("thaw")[:7]
    state = {n for n in states(thawed.folder("thaw_changed"), STEPS) if not n.endswith("_sq")}
    assert state == set(weights(thawed.folder("thaw"), 2, r"layers|tok_|norm\.|lm_head"))


def built(groups: str, *words: str) -> tuple[torch.nn.Module, Optimizers]:
    plan = plan_run(STANDARD, [*SMALL, "--optimizer.groups", groups, *words], world_size=1)
    model = llama_config(plan.model.shape, plan.model.stack).build()
    model.init_states()
    freeze(model, plan.model.stack)
    settings = {"lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
    found, phases = read_groups(plan.sections, plan.model.shape, plan.model.stack)
    config = optimizer_config(
        "AdamW", **settings, implementation="fused", groups=found, phases=phases
    )
    return model, config.build(model_parts=[model])


def test_the_first_step_of_thawed_weights_is_adamws_first() -> None:
    groups = '[{parts="qk@1", freeze_until=3}, {parts="v@upper norm", lr_factor=0.1}, '
    groups += '{parts="@0", weight_decay=0.0}]'
    with pytest.raises(ValueError, match="norm@0 in two groups"):
        built(groups)
    model, optimizers = built(groups.replace(" norm", " norm@1"))
    generator = torch.Generator().manual_seed(1)
    for step in range(1, 5):
        optimizers.begin(step)
        before = {n: p.detach().double().numpy().copy() for n, p in model.named_parameters()}
        for param in model.parameters():
            if param.requires_grad:
                param.grad = torch.randn(param.shape, generator=generator)
        grads = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
        optimizers.step()
        for name, param in model.named_parameters():
            after, late = param.detach().double().numpy(), bool(re.search(r"1\..*w[qk]\.", name))
            if late and step <= 3:
                np.testing.assert_array_equal(after, before[name])
                assert name not in grads
            if step == (4 if late else 1):  # whose step is the sign of the gradient
                rate = 0.001 if re.search(r"s\.1\..*(wv|_norm)\.", name) else 0.01
                decay = 0.0 if name.startswith("layers.0.") else 0.1
                expected = (1 - rate * decay) * before[name] - rate * np.sign(grads[name])
                np.testing.assert_allclose(after, expected, atol=2e-5, err_msg=name)


def test_a_graph_is_captured_again_where_what_is_trained_changes() -> None:
    _, optimizers = built('[{parts="head", freeze_until=2}]')
    plan = plan_run(STANDARD, SMALL, world_size=1)
    config = SimpleNamespace(
        training=SimpleNamespace(seq_len=32, disable_cuda_graphs=False),
        compile=SimpleNamespace(enable=False),
    )
    own = {"optimizers": optimizers, "config": config, "model_config": plan.model}
    trainer = mock.Mock(spec=MixitTrainer, **own, metrics_processor=mock.Mock(), steps_here=0)
    trainer._capture_again.side_effect = lambda: MixitTrainer._capture_again(trainer)
    wrapped = []
    with (
        mock.patch("mixit_titan.runtime.trainer.begin"),
        mock.patch("mixit_titan.runtime.trainer.cudagraph_teardown") as dropped,
        mock.patch("mixit_titan.runtime.trainer.wrap_with_cuda_graph", wrapped.append),
    ):
        for trainer.step in range(1, 6):
            trainer.steps_here += 1
            MixitTrainer._begin_phase(trainer)
            assert len(wrapped) == dropped.call_count == (trainer.step > 2)


def test_a_resumed_run_takes_the_weight_decay_of_its_config() -> None:
    _, optimizers = built('[{parts="head", weight_decay=0.5}]')
    saved = optimizers.state_dict()
    _, others = built('[{parts="head", weight_decay=0.25}]')
    others.load_state_dict(saved)
    assert [group["weight_decay"] for group in next(iter(others)).param_groups] == [0.25, 0.1]
