"""What is printed about a step before it is measured, and how one that is too large ends."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from mixit_titan.bench import steps
from mixit_titan.bench.arguments import read_arguments
from mixit_titan.bench.runs import read_point
from mixit_titan.bench.size import size_of_step, too_long
from mixit_titan.config.shipped import shipped_configs
from tests.bench.conftest import TINY, make_point
from tests.forkserver import Forkserver, mixit_titan

LARGE = f"{shipped_configs()['160m_fineweb_edu']} --device cpu --width 64 --layers 2 --heads 2"


def test_the_size_of_a_step_is_counted_by_hand() -> None:
    width, hidden, vocab, length = 32, 64, 48, 16
    weights = 2 * (4 * width**2 + 3 * width * hidden) + vocab * width
    flops = 32 * (6 * weights + 2 * 6 * length * width)
    said = size_of_step(make_point(), ["standard", "mixit"])
    assert said.startswith("a step of each rank: 32 tokens (2 x 16), ")
    assert f"{flops / 1e12:,.2g} TFLOP (standard), at least 0.0 GiB" in said


def test_a_run_for_gpus_is_said_to_take_long_and_what_makes_it_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(16), raising=False)
    point = read_point(read_arguments(LARGE.split()), 1)
    assert "524,288 tokens (256 x 2,048, in 8 microbatches)" in size_of_step(point, ["mixit"])
    variants = ["standard", "frozen_qk", "frozen_mlp", "mixit"]
    said = too_long(point, variants, 8)
    least = len(variants) * 11 * 524_288 * 6 * 128_256 * 64 / (16 * 1e11) / 60  # of the heads alone
    minutes = int(re.search(r"it takes (\d+) minutes at the very least", said)[1])
    assert least < minutes < 1.2 * least and "cores of this machine (16) it takes" in said
    advice = said.partition("times that. ")[2].partition(" makes it small")[0]
    small = read_point(read_arguments([*LARGE.split(), *advice.split()]), 1)
    assert small.tokens == 256 and too_long(small, variants, 8) is None
    assert too_long(make_point(), variants, 8) is None


def bench_with_an_endless_step(*words: str) -> None:
    """It never returns to Python's own loop, and lets no other thread run, as a step may for
    minutes."""

    def step(self: steps.TrainerSteps, clock: object, microbatches: int | None = None) -> None:
        print("in a step", flush=True)
        sum(range(10**12))

    steps.TrainerSteps.step = step
    mixit_titan("bench", *words)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_within_a_step(
    forkserver: Forkserver, tmp_path: Path, number: signal.Signals
) -> None:
    words = [*TINY.split(), "--variants", "mixit", "--out", str(tmp_path)]
    with forkserver.start(bench_with_an_endless_step, *words) as process:
        deadline = time.monotonic() + 300
        while "in a step" not in process.output():
            assert process.poll() is None and time.monotonic() < deadline, process.output()
            time.sleep(0.05)
        assert "a step of each rank: 32 tokens" in process.output()
        os.kill(process.pid, number)
        try:
            assert abs(process.wait(60)) in (number, 128 + number)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{number!r} has not ended it")
