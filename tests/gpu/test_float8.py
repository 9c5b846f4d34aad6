"""Float8 and Muon on a GPU."""

import importlib.util
from pathlib import Path

import pytest
import torch

from .test_gpu import losses

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU, and --gpu")


@pytest.mark.skipif(
    importlib.util.find_spec("torchao") is None or torch.cuda.get_device_capability() < (8, 9),
    reason="needs torchao, and a GPU with float8",
)
@pytest.mark.parametrize("recipe", ["rowwise", "rowwise_with_gw_hp"])
@pytest.mark.parametrize("variant", ["frozen_qk", "mixit"])
def test_float8_follows_bfloat16(tmp_path: Path, variant: str, recipe: str) -> None:
    compiled = ["--compile.enable", "true"]
    expected = losses(tmp_path / "bfloat16", variant, *compiled)
    ours = losses(tmp_path / "float8", variant, *compiled, "--quantize.recipe", recipe)
    assert 0 < max(abs(a - b) for a, b in zip(ours, expected, strict=True)) < 0.1


def test_muon_learns(tmp_path: Path) -> None:
    values = losses(tmp_path / "muon", "frozen_qk", "--optimizer.name", "Muon")
    assert values[-1] < values[0] - 0.5
