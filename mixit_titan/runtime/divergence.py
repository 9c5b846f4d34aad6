"""Since when a run has diverged, and which checkpoint is from before that."""

import itertools
import math
import re
import statistics
from collections import deque
from pathlib import Path

from mixit_titan.errors import RunFailed
from mixit_titan.runtime.checkpoint_files import newest_complete
from mixit_titan.runtime.metrics import read_metrics

Losses = dict[int, float]
"""Losses by step. That of step N is the loss of the weights before the step, which are those of
checkpoint N - 1."""

_WINDOW = 5  # the level of the curve at a step is the median of this many losses
_HIGHEST_RATE = 1e-2  # for a second try
_SIGMAS, _LEAST_RISE = 3.0, 0.02  # above the lowest level, the loss has risen


class Diverged(RunFailed):
    """A run that cannot continue from its current state. `overrides` are what its command needs to
    resume from the last good checkpoint, or to start again, with a lower learning rate."""

    def __init__(self, sentence: str, overrides: list[str] | None = None) -> None:
        super().__init__(sentence)
        self.overrides = overrides or []


class Curve:
    """The latest losses of every step of this process; earlier ones are in metrics.jsonl."""

    def __init__(self) -> None:
        self._latest: deque[tuple[int, float]] = deque(maxlen=10_000)

    def add(self, step: int, loss: float) -> None:
        """Add the loss of a step."""
        self._latest.append((step, loss))

    def losses(self, folder: Path) -> Losses:
        """All known losses of the run in `folder`: those of this process, and logged ones from
        before."""
        lines = read_metrics(folder / "metrics.jsonl")
        logged = {line["step"]: line["loss"] for line in lines if _is_loss(line.get("loss"))}
        latest = dict(self._latest)
        first = min(latest, default=math.inf)
        return {step: loss for step, loss in logged.items() if step < first} | latest


def explain(
    what: str, losses: Losses, *, run: Path, checkpoints: Path | None, rate: float
) -> Diverged:
    """The error for a run that ended because of `what`, with advice. `checkpoints` is their
    folder."""
    good = last_good_step(losses)
    # The loss of a good step vouches for the weights before that step.
    step = newest_complete(checkpoints, before=good) if good is not None and checkpoints else None
    risen = [each for each in sorted(losses) if good is not None and each > good]
    if risen and math.isfinite(losses[risen[0]]):
        what = f"{what}, after the loss had been rising from step {risen[0]} on"
    lower = f"{min(rate / 2, _HIGHEST_RATE):g}"
    again = re.sub(r"_lr_[^_/]+$", "", str(run))  # the run may have followed such advice before
    overrides = ["--dump_folder", f"{again}_lr_{lower}", "--optimizer.lr", lower]
    if step is None:
        advice = "There is no checkpoint from before that: start again with a lower learning rate"
        return Diverged(f"{what}. {advice}", overrides)
    source = (checkpoints / f"step-{step}").absolute()  # torchtitan accepts no relative path
    overrides += ["--checkpoint.initial_load_path", str(source)]
    overrides += ["--checkpoint.initial_load_model_only", "false"]
    advice = (
        f"The last checkpoint from before that is {source}: resume from it with a lower learning "
        "rate"
    )
    return Diverged(f"{what}. {advice}", overrides)


def last_good_step(losses: Losses) -> int | None:
    """The last step whose loss was near the lowest level that the curve had reached by then; None
    if no loss is finite."""
    curve = [(step, loss) for step, loss in sorted(losses.items()) if math.isfinite(loss)]
    if not curve:
        return None
    values = [loss for _, loss in curve]
    levels = [
        statistics.median_low(values[max(0, n - _WINDOW) : n]) for n in range(1, len(values) + 1)
    ]
    lowest = min(levels)
    # What follows the lowest level may be the divergence itself, and not noise.
    before = values[: levels.index(lowest) + 1]
    steps = [abs(after - value) for value, after in itertools.pairwise(before)]
    noise = statistics.median(steps) if steps else 0.0  # about one standard deviation
    top = lowest + max(_SIGMAS * noise, _LEAST_RISE * abs(lowest))
    good = [step for step, loss in curve if loss <= top]
    return max(good, default=None)


def _is_loss(value: object) -> bool:
    return isinstance(value, int | float)
