"""A toy has the settings of the run it stands for, but its own size."""

from pathlib import Path

import pytest
import tomli

from mixit_titan.config.run import plan_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.config.toml import read_toml
from mixit_titan.drill.setup import write_setup
from mixit_titan.drill.toy import write_toml

SPLIT = {
    "tensor": ["--parallelism.tensor_parallel_degree", "2"],
    "pipeline": [
        *("--parallelism.pipeline_parallel_degree", "2", "--model.tied", "false"),
        *("--parallelism.pipeline_parallel_schedule", "Interleaved1F1B"),
    ],
    "replicas": ["--parallelism.data_parallel_replicate_degree", "2"],
}


@pytest.mark.parametrize("name", sorted(shipped_configs()))
def test_every_config_has_a_toy(tmp_path: Path, name: str) -> None:
    config, toy = str(shipped_configs()[name]), tmp_path / "toy.toml"
    ranks, on_gpus = 64 if name.startswith("8b") else 4, "debug" not in name
    sizes = {"steps": 60, "ranks": ranks, "fewer": ranks - ranks // 4}
    setup = write_setup(config, [], toy, **sizes, on_gpus=on_gpus)
    assert (setup.steps, setup.why_not_fewer, setup.watched) == (60, None, True)
    real = plan_run(config, [], world_size=ranks, on_gpus=on_gpus)
    small = plan_run(str(toy), [], world_size=ranks, on_gpus=on_gpus)
    for key in ("bias", "tied", "rope_theta", "rope_factor", "init_std"):
        assert getattr(small.model.shape, key) == getattr(real.model.shape, key)
    assert (small.model.shape.kv_heads is None) == (real.model.shape.kv_heads is None)
    assert small.model.stack == real.model.stack and small.model.recipe == real.model.recipe
    for section in ("optimizer", "compile", "fsdp", "quantize", "watch"):
        assert getattr(small.sections, section) == getattr(real.sections, section)
    assert small.sections.checkpoint.async_mode == real.sections.checkpoint.async_mode
    assert small.model.shape.width <= 64 and small.sections.data.path == "synthetic"


def test_the_toy_of_a_stack_has_its_kinds_of_layers(tmp_path: Path) -> None:
    config, toy = str(shipped_configs()["160m_fineweb_edu"]), tmp_path / "toy.toml"
    words = ["--model.stack", "mixit*5 frozen_qk"]
    write_setup(config, words, toy, steps=60, ranks=4, fewer=3, on_gpus=True)
    small = plan_run(str(toy), words, world_size=4, on_gpus=True)
    assert small.model.stack.name == "mixit*5 frozen_qk" and small.model.shape.layers == 12


@pytest.mark.parametrize("name", SPLIT)
def test_a_toy_can_be_split_as_the_run_is(tmp_path: Path, name: str) -> None:
    config, toy = str(shipped_configs()["1b_fineweb_edu"]), tmp_path / "toy.toml"
    words = [*SPLIT[name], "--model.variant", "standard"]
    setup = write_setup(config, words, toy, steps=60, ranks=4, fewer=3, on_gpus=True)
    assert (setup.why_not_fewer is None) == (name == "replicas"), setup.why_not_fewer


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    table = {
        "device": "cpu",
        "model": {"freeze": ["qk", "mlp"], "mixing": {"seed": 3}, "variant": 'a "b" \\ ü'},
        "optimizer": {"lr": 1e-07, "betas": [0.9, 0.95]},
        "watch": {"enable": False, "step": float("inf")},
    }
    write_toml(tmp_path / "toy.toml", table)
    assert tomli.loads((tmp_path / "toy.toml").read_text()) == table
    assert read_toml(str(tmp_path / "toy.toml")) == table
