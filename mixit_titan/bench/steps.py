"""Training steps taken one at a time under a clock: the trainer's own, and the plain Llama's."""

import contextlib
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torchtitan.config import TORCH_DTYPE_MAP
from torchtitan.distributed import utils as dist_utils
from torchtitan.trainer import Trainer

from mixit_titan.bench.plain import PlainLlama
from mixit_titan.bench.runs import load_variant
from mixit_titan.bench.settings import Point
from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.device import local_device
from mixit_titan.model.stack import as_folder

PLAIN = "plain"
"""A variant's name for the plain PyTorch Llama, which is never compiled."""

PHASES = ("data", "forward_backward", "optimizer")
"""Forward and backward are one phase: a CUDA graph holds both passes and a chunked loss interleaves
them, so nothing can be timed between them."""


class Clock(Protocol):
    """Measures the seconds of each phase of a step."""

    def start(self) -> None: ...

    def lap(self, phase: str) -> None: ...


class Steps(Protocol):
    """A model whose training steps can be timed."""

    def step(self, clock: Clock, microbatches: int | None = None) -> None:
        """Take one step; `microbatches` replaces the number that the run accumulates."""

    def close(self) -> None:
        """Release what would outlive the model."""


def build_steps(variant: str, point: Point, folder: Path) -> Steps:
    """Build the steps of a variant; its trainer writes files such as its config to `folder`."""
    if variant == PLAIN:
        return PlainSteps(load_variant(point, "standard", folder), point)
    return TrainerSteps(load_variant(point, variant, folder / as_folder(variant)))


class TrainerSteps:
    """The loop body of torchtitan's `Trainer.train`, without saving and validating."""

    def __init__(self, run: Trainer.Config) -> None:
        self.trainer = run.build()
        self.microbatches = self.trainer.gradient_accumulation_steps
        self.batches = self.trainer.batch_generator(self.trainer.dataloader)
        self.passes = self.trainer.forward_backward_step
        self.trainer.forward_backward_step = self._timed_passes

    def step(self, clock: Clock, microbatches: int | None = None) -> None:
        trainer, self.clock = self.trainer, clock
        trainer.step += 1
        trainer.gradient_accumulation_steps = microbatches or self.microbatches
        clock.start()
        trainer.gc_handler.run(trainer.step)
        trainer.train_step(self.batches)
        clock.lap("optimizer")

    def _timed_passes(self, **batch: Any) -> torch.Tensor:
        self.clock.lap("data")
        loss = self.passes(**batch)
        self.clock.lap("forward_backward")
        return loss

    def close(self) -> None:
        """Release the CUDA graphs, which all trainers of this process share."""
        self.batches.close()
        self.trainer.close()


class PlainSteps:
    """A loop as one would write it in plain PyTorch, on the same rows but without documents or
    FSDP2."""

    def __init__(self, run: Trainer.Config, point: Point) -> None:
        self.device, self.microbatches = local_device(), point.microbatches
        self.model = PlainLlama(point.shape).to(self.device)
        self.optimizer = run.optimizer.build(model_parts=[self.model])
        loader = run.dataloader.build(
            dp_world_size=1,
            dp_rank=0,
            seq_len=run.training.seq_len,
            local_batch_size=run.training.local_batch_size,
        )
        self.batches = iter(loader)
        self.autocast = contextlib.nullcontext
        if point.dtype != "float32":
            dtype = TORCH_DTYPE_MAP[point.dtype]
            self.autocast = lambda: torch.autocast(self.device.type, dtype=dtype)

    def step(self, clock: Clock, microbatches: int | None = None) -> None:
        clock.start()
        batches = [next(self.batches) for _ in range(microbatches or self.microbatches)]
        tokens = sum(int((labels_BL != IGNORE_INDEX).sum()) for _, labels_BL in batches)
        for inputs, labels_BL in batches:
            tokens_BL, labels_BL = (x.to(self.device) for x in (inputs["input"], labels_BL))
            clock.lap("data")
            with self.autocast():
                logits_BLV = self.model(tokens_BL)
                loss = _summed_loss(logits_BLV, labels_BL) / tokens
            loss.backward()
            del loss, logits_BLV
            clock.lap("forward_backward")
        dist_utils.clip_grad_norm_([*self.model.parameters()], 1.0, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad()
        clock.lap("optimizer")

    def close(self) -> None:
        self.batches.close()


def _summed_loss(logits_BLV: torch.Tensor, labels_BL: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(
        logits_BLV.flatten(0, 1).float(),
        labels_BL.flatten(0, 1),
        reduction="sum",
        ignore_index=IGNORE_INDEX,
    )
