"""The same run in other ways: the loss curve must not change."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from mixit_titan.config.run import load_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.model.build import llama_config
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.variants import VARIANTS
from mixit_titan.runtime.metrics import read_metrics

from .conftest import SMALL, STEPS, Runs


def assert_same(ours: list[float], expected: list[float], tolerance: float) -> None:
    assert len(ours) == len(expected) == STEPS
    assert max(abs(a - b) for a, b in zip(ours, expected, strict=True)) < tolerance


def test_every_variant_learns(runs: Runs) -> None:
    for variant in VARIANTS:
        losses = runs.losses(variant)
        assert losses[-1] < losses[0] - (0.2 if variant == "random" else 0.5), variant


def test_two_ranks_give_the_losses_of_one(runs: Runs) -> None:
    jobs = {f"{name}_2": (name, []) for name in VARIANTS}
    plain = ["--parallelism.data_parallel_replicate_degree", "2"]
    jobs |= {f"{name}_ddp": (name, plain) for name in ("mixit", "frozen_qk")}
    runs.train(2, jobs)
    for name, (variant, _) in jobs.items():
        assert_same(runs.losses(name), runs.losses(variant), 1e-4)


def test_hybrid_sharding_on_four_ranks(runs: Runs) -> None:
    hybrid = ["--parallelism.data_parallel_replicate_degree", "2"]
    runs.train(4, {f"{name}_4": (name, hybrid) for name in ("mixit", "frozen_mlp")})
    for variant in ("mixit", "frozen_mlp"):
        assert_same(runs.losses(f"{variant}_4"), runs.losses(variant), 1e-4)


def test_activation_checkpointing_changes_nothing(runs: Runs) -> None:
    jobs = {
        f"{variant}_{mode}": (variant, ["--activation_checkpoint.mode", mode])
        for variant in VARIANTS
        for mode in ("selective", "full")
    }
    jobs["standard_chunks"] = ("standard", ["--loss.num_chunks", "4"])
    runs.train(1, jobs)
    for name, (variant, _) in jobs.items():
        assert_same(runs.losses(name), runs.losses(variant), 1e-5)


COMPILED = ["--compile.enable"]


def test_compiled_and_eager_agree(runs: Runs) -> None:
    """One of each mixer, and weights without gradients. The others: below."""
    jobs = {f"{variant}_compiled": (variant, COMPILED) for variant in ("frozen_qk", "mixit")}
    runs.train(1, jobs)
    for name, (variant, _) in jobs.items():
        assert_same(runs.losses(name), runs.losses(variant), 1e-4)


@pytest.mark.slow
def test_compiled_and_eager_agree_for_every_variant_and_on_two_ranks(runs: Runs) -> None:
    others = [variant for variant in VARIANTS if variant not in ("frozen_qk", "mixit")]
    jobs = {f"{variant}_compiled": (variant, COMPILED) for variant in others}
    jobs["mixit_compiled_full"] = ("mixit", [*COMPILED, "--activation_checkpoint.mode", "full"])
    runs.train(1, jobs)
    jobs["frozen_qk_compiled_2"] = ("frozen_qk", COMPILED)
    runs.train(2, {"frozen_qk_compiled_2": jobs["frozen_qk_compiled_2"]})
    for name, (variant, _) in jobs.items():
        assert_same(runs.losses(name), runs.losses(variant), 1e-4)


@pytest.mark.slow
def test_the_settings_of_the_large_configs_together(runs: Runs) -> None:
    """Tied, in chunks, compiled, selective checkpointing, validation, asynchronous saves."""
    plain = ["--model.tied", "true", "--validator.enable", "true"]
    large = [*plain, "--loss.num_chunks", "4", "--compile.enable"]
    large += ["--activation_checkpoint.mode", "selective", "--checkpoint.interval", "5"]
    large += ["--checkpoint.async_mode", "async"]
    runs.train(1, {"plain": ("frozen_qk", plain)})
    runs.train(2, {"large": ("frozen_qk", large)})
    expected, ours = (read_metrics(runs.folder(n) / "metrics.jsonl") for n in ("plain", "large"))
    key = {"loss", "validation_loss"}
    assert len(ours) == len(expected) == STEPS + 2  # validated at the first and the last step
    for a, b in zip(expected, ours, strict=True):
        (name,) = key & a.keys()
        assert a["step"] == b["step"] and abs(a[name] - b[name]) < 1e-4
    assert (runs.folder("large") / "checkpoint" / "step-15" / ".metadata").is_file()


def test_torchtitans_own_entry_point(runs: Runs) -> None:
    """`-m torchtitan.train` imports torchtitan before us, and takes "cuda" for granted."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=1"]
    command += ["-m", "torchtitan.train", "--module", "mixit_titan", "--config", "debug_mixit"]
    settings = ["--dump_folder", str(runs.folder("native")), "--training.steps", "5"]
    done = subprocess.run(
        [sys.executable, *command, *settings, "--metrics.log_freq", "1"],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    lines = read_metrics(runs.folder("native") / "metrics.jsonl")
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4, 5]


def test_a_resumed_run_gives_the_unbroken_curve(runs: Runs) -> None:
    """Stopped at step 10 on two ranks, resumed on one: also past what was logged in vain."""
    until_10 = ["--training.steps", "10", "--lr_scheduler.total_steps", str(STEPS)]
    names = tuple(VARIANTS)
    runs.train(2, {f"{name}_resumed": (name, until_10) for name in names})
    for name in names:
        assert len(runs.losses(f"{name}_resumed")) == 10
        with (runs.folder(f"{name}_resumed") / "metrics.jsonl").open("a") as file:
            file.write('{"step": 11, "loss": 99.0, "seconds": 1.0}\n{"step": 12, "lo')
    runs.train(1, {f"{name}_resumed": (name, ["--data.workers", "1"]) for name in names})
    for name in names:
        assert_same(runs.losses(f"{name}_resumed"), runs.losses(name), 1e-4)
        last = read_metrics(runs.folder(f"{name}_resumed") / "metrics.jsonl")[-1]
        assert last["tokens"] == STEPS * 8 * 32  # of all ranks, before and after


def test_weights_can_go_on_with_other_rows(runs: Runs) -> None:
    """In the same folder, where the loader begins anew, and in another."""
    shutil.copytree(runs.folder("standard"), runs.folder("other_rows"))
    other = ["--data.packing", "documents", "--training.steps"]
    anew = [*other, "22", "--checkpoint.exclude_from_loading", "dataloader"]
    weights = str(runs.folder("standard") / "checkpoint" / f"step-{STEPS}")
    begun = [*other, "2", "--checkpoint.initial_load_path", weights]
    runs.train(1, {"other_rows": ("standard", anew), "begun": ("standard", begun)})
    assert len(runs.losses("other_rows")) == 22
    assert runs.losses("begun")[0] < runs.losses("standard")[0] - 0.5


def test_frozen_weights_survive_the_spmd_types_backend(runs: Runs) -> None:
    backend = ["--parallelism.spmd_backend", "spmd_types"]
    names = ("frozen_qk", "random")
    runs.train(1, {f"{name}_spmd": (name, backend) for name in names})
    for name in names:
        assert_same(runs.losses(f"{name}_spmd"), runs.losses(name), 1e-4)
        _assert_only_trained_weights_moved(runs.folder(f"{name}_spmd"), name)


@pytest.mark.parametrize("variant", VARIANTS)
def test_frozen_weights_never_move_and_have_no_optimizer_state(runs: Runs, variant: str) -> None:
    _assert_only_trained_weights_moved(runs.folder(variant), variant)


def _assert_only_trained_weights_moved(folder: Path, variant: str) -> None:
    own = ["--model.variant", variant, *SMALL]
    config = load_run(str(shipped_configs()["debug_standard"]), own, world_size=1)
    described: MixitLlama.Config = config.model_spec.model
    model = llama_config(described.shape, described.stack, described.recipe).build()
    model.init_states()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    checkpoint = str(folder / "checkpoint" / f"step-{STEPS}")
    trained = {name: torch.empty_like(value) for name, value in start.items()}
    dcp.load(trained, checkpoint_id=checkpoint, no_dist=True)
    keys = dcp.FileSystemReader(checkpoint).read_metadata().state_dict_metadata.keys()
    frozen_marks = {
        "frozen_qk": (".wq.", ".wk."),
        "frozen_mlp": (".feed_forward.",),
        "random": ("layers.", "norm."),
    }.get(variant, ())
    for name, value in start.items():
        frozen = any(mark in name for mark in frozen_marks)
        assert torch.equal(value, trained[name]) == frozen, name
        assert (f"optimizer.state.{name}.exp_avg" in keys) == (not frozen), name
    assert not any("matrix" in key for key in keys)  # mixing matrices are not saved
