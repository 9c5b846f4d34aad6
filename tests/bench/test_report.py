import dataclasses

import numpy as np
import pytest

from mixit_titan.bench.measure import Times
from mixit_titan.bench.memory import Peak
from mixit_titan.bench.ranks import slowest
from mixit_titan.bench.report import ratio_interval, rows
from mixit_titan.bench.settings import Point
from mixit_titan.model.shapes import Shape

# FLOP ratios of 1.039, 1.289 and 1.150.
POINT = Point(
    shape=Shape(width=512, layers=12, heads=8, hidden=2048, vocab=8192, seq_len=256),
    seq_len=256,
    batch=4,
)
FLOPS_PER_TOKEN = 6 * (12 * (4 * 512**2 + 3 * 512 * 2048) + 512 * 8192) + 12 * 6 * 256 * 512


def times(*seconds: float) -> Times:
    phases = [{"data": 0.0, "forward_backward": 0.9 * s, "optimizer": 0.1 * s} for s in seconds]
    return Times(first=9.0, phases=phases, cpu=[2 * s for s in seconds])


def test_a_row_says_what_the_times_say() -> None:
    taken = {"standard": times(2, 2, 4, 2, 1), "mixit": times(2, 1.6, 1.6, 1.2, 1.6)}
    peaks = {name: Peak(accumulating=20, one_batch=10) for name in taken}
    standard, mixit = rows(POINT, taken, peaks, peak_flops=1e12)
    assert standard["tokens_per_s"] == pytest.approx(1024 / 2)
    assert standard["samples_per_s"] == pytest.approx(4 / 2)
    assert mixit["tokens_per_s"] == pytest.approx(1024 / 1.6)
    assert mixit["tokens_per_s_quartiles"] == pytest.approx([1024 / 1.6, 1024 / 1.6])
    assert mixit["phase_seconds"]["forward_backward"] == pytest.approx(0.9 * 1.6)
    assert mixit["ratio"] == pytest.approx(1.25)
    assert mixit["limit"] == pytest.approx(1.1505, abs=1e-4)
    assert mixit["share_of_limit"] == pytest.approx(1.25 / mixit["limit"])
    assert standard["tflops_per_rank"] == pytest.approx(FLOPS_PER_TOKEN * 1024 / 2 / 1e12)
    assert standard["mfu"] == pytest.approx(FLOPS_PER_TOKEN * 1024 / 2 / 1e12)
    assert mixit["cpu_seconds_per_second"] == pytest.approx(2)
    assert mixit["peak_memory_bytes"] == 20
    assert rows(POINT, taken, peaks)[0]["mfu"] is None  # nobody knows the peak


def test_ranks_that_share_a_batch_share_its_tokens() -> None:
    """Tensor parallelism of 2 on 8 ranks: four batches in a step."""
    point = dataclasses.replace(POINT, ranks=8, data_parallel=4)
    (row,) = rows(point, {"standard": times(2, 2)}, {"standard": Peak(accumulating=1, one_batch=1)})
    assert row["tokens_per_s"] == pytest.approx(4 * 1024 / 2)
    assert row["samples_per_s"] == pytest.approx(4 * 4 / 2)
    assert row["tflops_per_rank"] == pytest.approx(FLOPS_PER_TOKEN * 1024 / 2 / 2 / 1e12)


def test_flops_are_counted_at_the_length_of_the_rows() -> None:
    taken = {"standard": times(2, 2)}
    peaks = {"standard": Peak(accumulating=1, one_batch=1)}
    (row,) = rows(dataclasses.replace(POINT, seq_len=128), taken, peaks)
    per_token = FLOPS_PER_TOKEN - 12 * 6 * 128 * 512
    assert row["tflops_per_rank"] == pytest.approx(per_token * 4 * 128 / 2 / 1e12)


def test_the_interval_of_a_ratio() -> None:
    rng = np.random.default_rng(1)
    steady = [1.0] * 12
    assert ratio_interval([1.3] * 12, steady) == pytest.approx([1.3, 1.3])
    noisy = list(1.3 * np.exp(0.05 * rng.standard_normal(200)))
    low, high = ratio_interval(noisy, [1.0] * 200)
    # The median of n normals of deviation s is off by s sqrt(pi / 2n): 0.0044 relative here.
    assert 1.28 < low < np.median(noisy) < high < 1.32
    # Noise that hits both models of a round alike cancels nearly: the rounds are drawn in pairs.
    both = [0.5, 1, 2, 4, 8, 16, 32, 64]
    assert ratio_interval([1.3 * s for s in both], both) == pytest.approx([1.3, 1.3])


def test_a_step_of_many_ranks_is_over_when_the_last_is() -> None:
    together = slowest([times(1, 5, 3), times(2, 4, 6)])
    assert together.steps == pytest.approx([2, 5, 6])
    assert together.cpu == pytest.approx([4, 10, 12])
