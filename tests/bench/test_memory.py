import torch

from mixit_titan.bench.memory import peak_memory
from mixit_titan.bench.settings import Point
from mixit_titan.bench.steps import Clock, Steps
from mixit_titan.model.accounting import count
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import VARIANTS

MIB = 2**20


class KnownSteps:
    """Holds 3 MiB; a step takes 2 MiB more for each batch, and 1 MiB that it gives back."""

    def __init__(self) -> None:
        self.weights = torch.ones(3 * MIB, dtype=torch.uint8)

    def step(self, clock: Clock, batches: int = 1) -> None:
        kept = []
        for _ in range(batches):
            kept.append(torch.ones(2 * MIB, dtype=torch.uint8))
            torch.ones(MIB, dtype=torch.uint8)


def test_the_peak_of_known_allocations() -> None:
    before = torch.ones(5 * MIB, dtype=torch.uint8)  # of someone else: not counted
    peak = peak_memory(KnownSteps)
    del before
    assert peak.one_batch == (3 + 2 + 1) * MIB
    assert peak.accumulating == (3 + 2 * 2 + 1) * MIB


def test_frozen_weights_have_no_gradient_and_no_optimizer_state_in_memory() -> None:
    point = Point(
        shape=Shape(width=64, layers=2, heads=4, hidden=256, vocab=64, seq_len=32), batch=2
    )
    peaks = {
        v: peak_memory(lambda v=v: Steps(v, point)) for v in ("standard", "frozen_qk", "frozen_mlp")
    }
    for variant, frozen in {"frozen_qk": 2 * 2 * 64**2, "frozen_mlp": 2 * 3 * 64 * 256}.items():
        assert count(point.shape, VARIANTS[variant]).frozen == frozen
        # A gradient and AdamW's two moments, float32.
        assert peaks["standard"].accumulating - peaks[variant].accumulating >= 12 * frozen
