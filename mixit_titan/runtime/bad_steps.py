"""Steps that must not change the model, because their loss or gradient norm is not finite or is a
spike.

`stop`: the run ends. The host learns of a bad step after queuing the next one, so that it never
waits for a GPU (late.py), and tells the other ranks in the message that they exchange after every
step anyway (stop.py).

`skip`: the run trains on as if the batch had not existed. That must be decided before the
optimizer's step: the host reads loss and norm there, after the backward pass and outside of what is
captured as a CUDA graph. All ranks decide by the same numbers, which they have summed.
"""

import contextlib
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch.distributed.tensor import DTensor
from torchtitan.config.configs import TrainingConfig
from torchtitan.distributed import utils as dist_utils

from mixit_titan.errors import ConfigError
from mixit_titan.log import logger
from mixit_titan.runtime.divergence import Curve, Diverged
from mixit_titan.runtime.late import Late
from mixit_titan.runtime.stop import Agreement

WINDOW, LEAST = 128, 64  # good steps that define the spread, and how many it takes at least
_LEAST_SPREAD = 0.01  # relative to the mean: a curve without noise has no spikes


@dataclass(kw_only=True, slots=True)
class Training(TrainingConfig):
    """[training]: torchtitan's keys, and what to do about bad steps."""

    on_bad_step: Literal["stop", "skip"] = "stop"
    """A step whose loss or gradient norm is not finite ends the run; `skip`: its batch is skipped
    on all ranks, and the host waits for the backward pass of every step."""
    bad_steps_in_a_row: int = 10
    """Skipping more than this many batches in a row ends the run."""
    bad_steps_in_all: int = 100
    """Skipping more than this many batches in total ends the run."""
    spike: float | None = None
    """Also skip a batch whose loss or gradient norm is this many standard deviations above its mean
    over the last 128 steps. Default: never."""

    def __post_init__(self) -> None:
        if self.spike is not None and self.on_bad_step != "skip":
            raise ConfigError('training.spike needs training.on_bad_step = "skip"')


class BadStep(Exception):
    """Raised between the backward pass and the optimizer's step, before anything has changed."""


class BadSteps:
    """Checks each step of a trainer."""

    def __init__(
        self, config: Training, agreement: Agreement, device: torch.device, loss_ranks: int
    ) -> None:
        """`loss_ranks` is the number of ranks whose losses add up to that of the global batch."""
        self.config, self.agreement, self.loss_ranks = config, agreement, loss_ranks
        self.skips = config.on_bad_step == "skip"
        self.late, self.curve = Late(device), Curve()
        self.in_a_row = 0
        # Reused, because asynchronous saves keep a pinned copy for each tensor that they have
        # seen: the batches skipped in total, the good steps so far, their latest losses and norms.
        self.state = torch.zeros(2 + 2 * WINDOW, dtype=torch.float64)
        self._loss: torch.Tensor | None = None
        self._has_loss = True

    @property
    def skipped(self) -> int:
        """The batches skipped since the beginning of the run."""
        return int(self.state[0])

    @contextlib.contextmanager
    def looking(self, step: int, *, has_loss: bool) -> Iterator[None]:
        """A context around each step that checks its loss and norm. `has_loss` is False on a rank
        of a pipeline's earlier stages."""
        self._loss, self._has_loss = None, has_loss
        with _norm_shown_to(lambda norm: self._look(step, norm)):
            yield

    def add_loss(self, loss: torch.Tensor) -> None:
        """Add the loss of one microbatch."""
        loss = loss.detach()
        loss = loss.to_local() if isinstance(loss, DTensor) else loss
        # A copy: the next replay of a CUDA graph writes to the same memory.
        self._loss = loss.clone() if self._loss is None else self._loss.add_(loss)

    def _look(self, step: int, norm: torch.Tensor) -> None:
        if not self.skips:
            self.late.put(step, self._loss, norm)
            return
        values = torch.stack([x.reshape(()).double() for x in (self._loss, norm)]).tolist()
        loss, norm = self._of_all(self.agreement.sums(*self._shared(values)))
        bad = _not_finite(loss, norm) or self._spike(loss, norm)
        if bad:
            self._skip(step, bad)
        self.in_a_row = 0
        self.curve.add(step, loss)
        self._remember(loss, norm)

    def check(self) -> None:
        """Called after every step on all ranks: end the run if it was asked to stop, or has
        diverged."""
        seen = None if self.skips else self.late.take()
        if seen is None:
            self.agreement.check()
            return
        step, values = seen
        self._judge(step, self.agreement.check(*self._shared(values)))

    def check_rest(self) -> None:
        """Called after the last step on all ranks: check the steps that `check` has not seen
        yet."""
        while (seen := self.late.take(all_of_them=True)) is not None:
            step, values = seen
            self._judge(step, self.agreement.sums(*self._shared(values)))

    def _judge(self, step: int, sums: list[float]) -> None:
        loss, norm = self._of_all(sums)
        bad = _not_finite(loss, norm)
        # Without a finite gradient the weights are lost, even if their loss is finite.
        self.curve.add(step, math.nan if bad else loss)
        if bad:
            raise Diverged(f"{bad} at step {step}")

    def _shared(self, values: list[float]) -> tuple[float, ...]:
        loss, norm = values
        return (loss, 1.0, norm, 1.0) if self._has_loss else (0.0, 0.0, norm, 1.0)

    def _of_all(self, sums: list[float]) -> tuple[float, float]:
        """The loss of the global batch and the norm, which are the same on all ranks."""
        loss, with_loss, norm, ranks = sums
        return loss * self.loss_ranks / with_loss, norm / ranks

    def _spike(self, loss: float, norm: float) -> str | None:
        count = min(int(self.state[1]), WINDOW)
        if self.config.spike is None or count < LEAST:
            return None
        history = self.state[2:].view(2, WINDOW)[:, :count].tolist()
        for name, value, before in zip(
            ("loss", "gradient norm"), (loss, norm), history, strict=True
        ):
            mean = statistics.fmean(before)
            spread = max(statistics.pstdev(before), _LEAST_SPREAD * abs(mean))
            if value > mean + self.config.spike * spread:
                return f"the {name} is {value:.4g}, after {mean:.4g} \u00b1 {spread:.2g} before"
        return None

    def _remember(self, loss: float, norm: float) -> None:
        place = int(self.state[1]) % WINDOW
        self.state[2 + place], self.state[2 + WINDOW + place] = loss, norm
        self.state[1] += 1

    def _skip(self, step: int, bad: str) -> None:
        self.in_a_row += 1
        self.state[0] += 1
        limits = {
            f"{self.in_a_row} batches in a row": self.in_a_row > self.config.bad_steps_in_a_row,
            f"{self.skipped} batches in total": self.skipped > self.config.bad_steps_in_all,
        }
        for said, passed in limits.items():
            if passed:
                raise Diverged(f"{bad} at step {step}, the last of {said}")
        logger.warning(f"Skipped a batch at step {step}: {bad} ({self.skipped} skipped in total)")
        raise BadStep


def _not_finite(loss: float, norm: float) -> str | None:
    for name, value in (("loss", loss), ("gradient norm", norm)):
        if not math.isfinite(value):
            return f"the {name} is not finite"
    return None


@contextlib.contextmanager
def _norm_shown_to(look: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Pass the gradient norm to `look`. torchtitan clips between the backward pass and the
    optimizer's step and keeps the norm to itself."""
    clip = dist_utils.clip_grad_norm_

    def clip_and_show(*arguments: object, **settings: object) -> torch.Tensor:
        norm = clip(*arguments, **settings)
        look(norm)
        return norm

    dist_utils.clip_grad_norm_ = clip_and_show
    try:
        yield
    finally:
        dist_utils.clip_grad_norm_ = clip
