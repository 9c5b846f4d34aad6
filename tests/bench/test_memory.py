from pathlib import Path

import pytest
import torch

from mixit_titan.bench.memory import fit_together, fitting, least_memory, peak_memory
from mixit_titan.bench.steps import Clock, build_steps
from mixit_titan.errors import ConfigError
from mixit_titan.model.accounting import count
from mixit_titan.model.variants import VARIANTS
from tests.bench.conftest import make_point

MIB = 2**20


class KnownSteps:
    """Holds 3 MiB; a step takes 2 MiB more for each batch, and 1 MiB that it gives back."""

    def __init__(self) -> None:
        self.weights = torch.ones(3 * MIB, dtype=torch.uint8)

    def step(self, clock: Clock, microbatches: int = 1) -> None:
        kept = []
        for _ in range(microbatches):
            kept.append(torch.ones(2 * MIB, dtype=torch.uint8))
            torch.ones(MIB, dtype=torch.uint8)

    def close(self) -> None:
        pass


def test_the_peak_of_known_allocations() -> None:
    before = torch.ones(5 * MIB, dtype=torch.uint8)  # of someone else: not counted
    peak = peak_memory(KnownSteps)
    del before
    assert peak.one_batch == (3 + 2 + 1) * MIB
    assert peak.accumulating == (3 + 2 * 2 + 1) * MIB


@pytest.mark.usefixtures("one_rank")
def test_frozen_weights_have_no_gradient_and_no_optimizer_state_in_memory(tmp_path: Path) -> None:
    point = make_point("--width 64 --hidden 256 --vocab 64 --seq-len 32")
    peaks = {
        v: peak_memory(lambda v=v: build_steps(v, point, tmp_path))
        for v in ("standard", "frozen_qk", "frozen_mlp")
    }
    for variant, frozen in {"frozen_qk": 2 * 2 * 64**2, "frozen_mlp": 2 * 3 * 64 * 256}.items():
        assert count(point.shape, VARIANTS[variant]).frozen == frozen
        # A gradient and AdamW's two moments, float32.
        assert peaks["standard"].accumulating - peaks[variant].accumulating >= 12 * frozen


def test_models_that_do_not_fit_together_are_measured_one_after_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = make_point("--width 256 --chunks 4")
    one, two = (least_memory(point, ["standard"] * n) for n in (1, 2))
    weights = count(point.shape, VARIANTS["standard"]).trainable
    assert two - one == 16 * weights  # weights, gradients and two moments, float32
    logits, layers = 2 * 16 * 48 // 4 * 4, 2 * 16 * 2 * 256 * 4
    assert one == 16 * weights + logits + layers
    for there, together in ((two, True), (two - 1, False)):
        monkeypatch.setattr("mixit_titan.bench.memory.memory_of_rank", lambda ranks, t=there: t)
        assert fit_together(point, ["standard", "standard"]) == together
        with fitting(point, ["standard", "standard"]):
            pass
    monkeypatch.setattr("mixit_titan.bench.memory.memory_of_rank", lambda ranks: one - 1)
    with pytest.raises(ConfigError, match="does not fit"), fitting(point, ["standard"]):
        pass
