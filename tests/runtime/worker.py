"""One rank that trains several runs one after the other, for `Forkserver.run_ranks`."""

import contextlib
import os
import time
from collections.abc import Iterator
from types import SimpleNamespace
from unittest import mock

from mixit_titan.config.run import load_run
from mixit_titan.runtime import launch
from mixit_titan.runtime.train import train


def train_all(ports: list[int], jobs: list[tuple[str, list[str]]]) -> None:
    """`jobs` are configs with overrides."""
    with without_naps():
        for port, (config, overrides) in zip(ports, jobs, strict=True):
            os.environ["MASTER_PORT"] = str(port)
            train(load_run(config, overrides, world_size=int(os.environ["WORLD_SIZE"])))


@contextlib.contextmanager
def without_naps() -> Iterator[None]:
    """torchtitan's rank 0 sleeps for 2 s after a run, for the others, who may need the store that
    is its: here it is not. Ours sleep before they end, for gloo: here once, after all runs."""
    clock = SimpleNamespace(perf_counter=time.perf_counter, sleep=lambda seconds: None)
    with (
        mock.patch("torchtitan.trainer.time", clock),
        mock.patch.object(launch, "_GLOO_SECONDS", 0),
    ):
        yield
    time.sleep(launch._GLOO_SECONDS)
