"""How frozen weights are kept changes memory and communication, but not the loss."""

import pytest
import torch
import torch.distributed.checkpoint as dcp

from mixit_titan.model.variants import VARIANTS

from .conftest import STEPS, Runs
from .test_training import assert_same

RESIDENT = ["--fsdp.frozen", "resident"]
BF16 = ["--training.mixed_precision_param", "bfloat16"]
FROZEN = {"frozen_qk": (".wq.", ".wk."), "random": ("layers.", "norm.")}


@pytest.fixture(scope="module")
def stored(runs: Runs) -> Runs:
    """On two ranks: resident, in bfloat16, and one that changes from resident to sharded."""
    until_10 = ["--training.steps", "10", "--lr_scheduler.total_steps", str(STEPS)]
    jobs = {f"{name}_resident": (name, RESIDENT) for name in FROZEN}
    jobs |= {f"{name}_bf16": (name, BF16) for name in FROZEN}
    jobs["frozen_qk_bf16_resident"] = ("frozen_qk", [*BF16, *RESIDENT])
    jobs["frozen_qk_changed"] = ("frozen_qk", [*BF16, *RESIDENT, *until_10])
    runs.train(2, jobs)
    runs.train(2, {"frozen_qk_changed": ("frozen_qk", BF16)})
    return runs


@pytest.mark.parametrize("variant", FROZEN)
def test_resident_weights_give_the_losses_of_sharded_ones(stored: Runs, variant: str) -> None:
    assert_same(stored.losses(f"{variant}_resident"), stored.losses(variant), 1e-4)


def test_also_in_bfloat16_and_when_a_run_changes_over(stored: Runs) -> None:
    sharded = stored.losses("frozen_qk_bf16")
    assert sharded != stored.losses("frozen_qk")  # it did compute in another precision
    assert_same(stored.losses("frozen_qk_bf16_resident"), sharded, 1e-4)
    assert_same(stored.losses("frozen_qk_changed"), sharded, 1e-4)


@pytest.mark.parametrize("variant", FROZEN)
def test_frozen_weights_have_no_float32_copy(stored: Runs, variant: str) -> None:
    """A checkpoint shows what there is: bfloat16 where frozen, float32 where trained."""
    checkpoint = str(stored.folder(f"{variant}_bf16") / "checkpoint" / f"step-{STEPS}")
    saved = dcp.FileSystemReader(checkpoint).read_metadata().state_dict_metadata
    weights = {k: v for k, v in saved.items() if k.endswith("weight") and "optimizer" not in k}
    assert len(weights) > 10 and VARIANTS[variant].frozen
    for name, described in weights.items():
        frozen = any(mark in name for mark in FROZEN[variant])
        expected = torch.bfloat16 if frozen else torch.float32
        assert described.properties.dtype == expected, name
