"""Checks that a run with a fault has reached the same result as an uninterrupted one."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from mixit_titan.drill.run import DrillFailed
from mixit_titan.runtime.checkpoint_identity import KEY
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.runtime.tensor_reader import TensorReader, load_state

_NEARLY = 0.01
"""In nats: sums in another order, or on a GPU, differ in the last bits."""
_OTHERS = (KEY, "train_state.")


@dataclass(frozen=True)
class Difference:
    """How far the results of two runs differ."""

    losses: float
    """The largest difference of any step."""
    weights: float
    """The largest difference in the last checkpoint, of weights and optimizer state."""

    def check(self, *, exact: bool) -> None:
        """Raise DrillFailed if the runs differ by more than rounding, or at all if `exact`."""
        by = f"losses by {self.losses:.2g}, weights and optimizer by {self.weights:.2g}"
        if self.losses > (0.0 if exact else _NEARLY) or (exact and self.weights):
            raise DrillFailed(f"it differs from the uninterrupted run: {by}")


def compare(run: Path, unbroken: Path, *, steps: int) -> Difference:
    """The differences between two finished runs, given by their folders."""
    pairs = zip(losses(run, steps), losses(unbroken, steps), strict=True)
    ours, theirs = (_tensors(each / "checkpoint" / f"step-{steps}") for each in (run, unbroken))
    if ours.keys() != theirs.keys():
        raise DrillFailed("its last checkpoint does not have the uninterrupted run's tensors")
    return Difference(
        losses=max(abs(a - b) for a, b in pairs),
        weights=max(
            (t.double() - theirs[name].double()).abs().max().item() for name, t in ours.items()
        ),
    )


def losses(folder: Path, steps: int) -> list[float]:
    """The loss of each step; raises DrillFailed unless each step was logged exactly once."""
    lines = [line for line in read_metrics(folder / "metrics.jsonl") if "loss" in line]
    found = [line["step"] for line in lines]
    if found != list(range(1, steps + 1)):
        raise DrillFailed(
            f"{folder}/metrics.jsonl does not have each of the steps 1 to {steps} once"
        )
    return [line["loss"] for line in lines]


def _tensors(checkpoint: Path) -> dict[str, torch.Tensor]:
    entries = TensorReader(checkpoint).read_metadata().state_dict_metadata
    tensors = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in entries.items()
        if isinstance(entry, TensorStorageMetadata) and not name.startswith(_OTHERS)
    }
    load_state(checkpoint, tensors, no_dist=True)
    return tensors
