"""Steps that must not change the model: their loss or gradient norm is not finite, or a spike.

`stop`: the run ends. The host learns of a bad step when the next one has been queued, so that it
never waits for a GPU (late.py), and tells it to the other ranks with the note that they exchange
after every step anyway (stop.py).

`skip`: the run trains on as if the batch had not been there. That must be known before the
optimizer's step: the host reads loss and norm there, after the passes and outside of what is
captured as a CUDA graph. All ranks decide by the same numbers, which they have added up.
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

WINDOW, LEAST = 128, 64  # good steps whose spread is known, and from how many on it is
_LEAST_SPREAD = 0.01  # of the mean: a curve without noise has no spikes


@dataclass(kw_only=True, slots=True)
class Training(TrainingConfig):
    on_bad_step: Literal["stop", "skip"] = "stop"
    """A step whose loss or gradient norm is not finite ends the run; `skip`: its batch is left out,
    on all ranks, and the host waits for the passes of every step."""
    bad_steps_in_a_row: int = 10
    """More batches to skip than so many, one after the other, end the run."""
    bad_steps_in_all: int = 100
    """And so do more in all."""
    spike: float | None = None
    """Skip also a loss or gradient norm that is so many standard deviations above its mean over the
    last 128 steps. Default: none."""

    def __post_init__(self) -> None:
        if self.spike is not None and self.on_bad_step != "skip":
            raise ConfigError('training.spike needs training.on_bad_step = "skip"')


class BadStep(Exception):
    """Raised between the passes and the optimizer's step: nothing has changed yet."""


class BadSteps:
    """Looks at each step of a trainer."""

    def __init__(
        self, config: Training, agreement: Agreement, device: torch.device, loss_ranks: int
    ) -> None:
        """`loss_ranks`: those whose losses add up to that of the global batch."""
        self.config, self.agreement, self.loss_ranks = config, agreement, loss_ranks
        self.skips = config.on_bad_step == "skip"
        self.late, self.curve = Late(device), Curve()
        self.in_a_row = 0
        # Kept, because asynchronous saves keep a pinned copy for each tensor that they have seen.
        # What was skipped in all, the good steps so far, their latest losses and norms.
        self.state = torch.zeros(2 + 2 * WINDOW, dtype=torch.float64)
        self._loss: torch.Tensor | None = None
        self._has_loss = True

    @property
    def skipped(self) -> int:
        return int(self.state[0])

    @contextlib.contextmanager
    def looking(self, step: int, *, has_loss: bool) -> Iterator[None]:
        """Around a step. `has_loss`: not a rank of a pipeline's other stages."""
        self._loss, self._has_loss = None, has_loss
        with _norm_shown_to(lambda norm: self._look(step, norm)):
            yield

    def add_loss(self, loss: torch.Tensor) -> None:
        """Of a microbatch."""
        loss = loss.detach()
        loss = loss.to_local() if isinstance(loss, DTensor) else loss
        # Not kept itself: the next replay of a CUDA graph writes to the same place.
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
        """After every step, on all ranks: end the run if it was asked to stop, or has diverged."""
        seen = None if self.skips else self.late.take()
        if seen is None:
            self.agreement.check()
            return
        step, values = seen
        self._judge(step, self.agreement.check(*self._shared(values)))

    def check_rest(self) -> None:
        """After the last step, on all ranks: what `check` has not seen yet."""
        while (seen := self.late.take(all_of_them=True)) is not None:
            step, values = seen
            self._judge(step, self.agreement.sums(*self._shared(values)))

    def _judge(self, step: int, sums: list[float]) -> None:
        loss, norm = self._of_all(sums)
        bad = _not_finite(loss, norm)
        # Weights without a gradient are lost, even where their loss is finite.
        self.curve.add(step, math.nan if bad else loss)
        if bad:
            raise Diverged(f"{bad} at step {step}")

    def _shared(self, values: list[float]) -> tuple[float, ...]:
        loss, norm = values
        return (loss, 1.0, norm, 1.0) if self._has_loss else (0.0, 0.0, norm, 1.0)

    def _of_all(self, sums: list[float]) -> tuple[float, float]:
        """The loss of the global batch and the norm, which are the same on all ranks then."""
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
                return f"the {name} is {value:.4g} and was {mean:.4g} \u00b1 {spread:.2g} before"
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
            f"{self.skipped} batches in all": self.skipped > self.config.bad_steps_in_all,
        }
        for said, passed in limits.items():
            if passed:
                raise Diverged(f"{bad} at step {step}, the last of {said}")
        logger.warning(f"Skipped a batch at step {step}: {bad} ({self.skipped} skipped in all)")
        raise BadStep


def _not_finite(loss: float, norm: float) -> str | None:
    for name, value in (("loss", loss), ("gradient norm", norm)):
        if not math.isfinite(value):
            return f"the {name} is not finite"
    return None


@contextlib.contextmanager
def _norm_shown_to(look: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """torchtitan clips between the passes and the optimizer's step, and keeps the norm."""
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
