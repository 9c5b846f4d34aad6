"""Runs some of whose batches are bad, one after the other, for `Forkserver.run_ranks`.

A batch is made bad on the last rank alone. Batch N is the N-th that the loader gives. What a run
that failed has said is left in its folder as `failed_RANK`, with the overrides that resume it.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from mixit_titan.config.run import load_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.files import write_json
from mixit_titan.runtime import bad_steps
from mixit_titan.runtime.divergence import Diverged
from mixit_titan.runtime.train import train
from mixit_titan.runtime.trainer import MixitTrainer

from .conftest import SMALL, STEPS
from .worker import without_naps

BATCH = 8
SKIP = ["--training.on_bad_step", "skip"]
LACKED = (6, 15)
RUNS = {1: 5, 2: 10}
"""By the number of ranks."""


class NanBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * float("nan")


class LossSpike(torch.autograd.Function):
    """The loss alone: gradients stay as they are."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return 3 * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


POISONS = {
    "loss": lambda loss: loss * float("nan"),
    "gradient": NanBackward.apply,
    "loss spike": LossSpike.apply,
    "norm spike": lambda loss: loss * 30 - 29 * loss.detach(),
}


def main(ports: list[int], root: Path) -> None:
    with without_naps():
        _main(iter(ports), root, int(os.environ["WORLD_SIZE"]))


def _main(ports: Iterator[int], root: Path, ranks: int) -> None:
    with lacking(LACKED):
        run(ports, root / "lacking")
    with poisoned({6: "loss", 15: "gradient"}):
        run(ports, root / "skipped", *SKIP)
    with poisoned({6: "norm spike", 15: "loss spike"}), mock.patch.object(bad_steps, "LEAST", 5):
        run(ports, root / "spiked", *SKIP, "--training.spike", "6")
    first = ["--training.steps", "10", "--lr_scheduler.total_steps", str(STEPS)]
    if ranks == 1:
        with lacking(LACKED):
            with of_an_earlier_version():
                run(ports, root / "older", *first)
            run(ports, root / "older")
        return
    with poisoned({6: "loss", 15: "gradient"}):
        run(ports, root / "resumed", *SKIP, *first)
        run(ports, root / "resumed", *SKIP)
    with poisoned(dict.fromkeys(range(6, 20), "loss")):
        run(ports, root / "row", *SKIP, "--training.bad_steps_in_a_row", "3")
    with poisoned({3: "loss", 5: "loss", 6: "gradient", 9: "loss"}):
        run(ports, root / "all", *SKIP, "--training.bad_steps_in_all", "3")
    with poisoned({11: "gradient"}):
        unlogged = ["--checkpoint.interval", "3", "--metrics.log_freq", "100"]
        run(ports, root / "stopped", *unlogged)
    with poisoned({14: "loss"}), growing(from_step=8):
        # Weights that begin small: those that grow then show in the loss at once.
        small = ["--model.init_std", "0.02", "--model.embedding_std", "0.02"]
        failure = run(ports, root / "diverging", *small, "--checkpoint.interval", "1")
    again = root / "again"
    with noted_rates(again):
        short = ["--training.steps", "9", "--lr_scheduler.total_steps", str(STEPS)]
        run(ports, again, *failure.overrides, "--dump_folder", str(again), *short)


def run(ports: Iterator[int], folder: Path, *overrides: str) -> Diverged | None:
    os.environ["MASTER_PORT"] = str(next(ports))
    words = [*SMALL, "--dump_folder", str(folder), *overrides]
    config = str(shipped_configs()["debug_mixit"])
    try:
        train(load_run(config, words, world_size=int(os.environ["WORLD_SIZE"])))
    except Diverged as failure:
        said = {"said": str(failure), "overrides": failure.overrides}
        write_json(folder / f"failed_{dist.get_rank()}", said)
        dist.destroy_process_group()
        return failure
    return None


@contextlib.contextmanager
def poisoned(batches: dict[int, str]) -> Iterator[None]:
    passes = MixitTrainer._forward_backward_body

    def body(self: MixitTrainer, *arguments: Any) -> torch.Tensor:
        kind = batches.get(self.dataloader.consumed // BATCH)
        if kind is None or dist.get_rank() < dist.get_world_size() - 1:
            return passes(self, *arguments)
        loss_fn = self.loss_fn

        def poison(*given: Any, **settings: Any) -> tuple:
            loss, *rest = loss_fn(*given, **settings)
            return POISONS[kind](loss), *rest

        with mock.patch.object(self, "loss_fn", poison):
            return passes(self, *arguments)

    with mock.patch.object(MixitTrainer, "_forward_backward_body", body):
        yield


@contextlib.contextmanager
def lacking(batches: Iterable[int]) -> Iterator[None]:
    """The data without these."""
    generator = MixitTrainer.batch_generator

    def without(self: MixitTrainer, data: Any) -> Iterator[Any]:
        for batch in generator(self, data):
            if self.dataloader.consumed // BATCH not in batches:
                yield batch

    with mock.patch.object(MixitTrainer, "batch_generator", without):
        yield


@contextlib.contextmanager
def growing(*, from_step: int) -> Iterator[None]:
    """As by a rate that is too high: from the weights after that step on, all is too large."""
    train_step = MixitTrainer.train_step

    def grow(self: MixitTrainer, data: Any) -> None:
        train_step(self, data)
        if self.step >= from_step:
            with torch.no_grad():
                for weight in self.model_parts[0].parameters():
                    weight.mul_(10)

    with mock.patch.object(MixitTrainer, "train_step", grow):
        yield


@contextlib.contextmanager
def noted_rates(folder: Path) -> Iterator[None]:
    """`rates_RANK` in the run's folder: those that the optimizer itself begins its steps with."""
    train_step, rates = MixitTrainer.train_step, {}

    def note(self: MixitTrainer, data: Any) -> None:
        (rates[self.step],) = {
            group["lr"] for each in self.optimizers for group in each.param_groups
        }
        train_step(self, data)
        write_json(folder / f"rates_{dist.get_rank()}", rates)

    with mock.patch.object(MixitTrainer, "train_step", note):
        yield


@contextlib.contextmanager
def of_an_earlier_version() -> Iterator[None]:
    """Its checkpoints say nothing of bad steps."""
    state_dict = MixitTrainer.state_dict

    def without(self: MixitTrainer) -> dict[str, Any]:
        return {key: value for key, value in state_dict(self).items() if key != "bad_steps"}

    with mock.patch.object(MixitTrainer, "state_dict", without):
        yield
