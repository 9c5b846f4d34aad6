"""Loss and accuracy of a model on a batch or on a complete test set.

Shapes: B batch, L positions that can be asked, V answers.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.tasks.examples import Examples

_BATCH = 500  # test examples at a time


@dataclass(frozen=True)
class Batch:
    """Examples on the model's device."""

    tokens: torch.Tensor
    labels: torch.Tensor
    targets: torch.Tensor | None

    def to(self, device: torch.device) -> "Batch":
        targets = None if self.targets is None else self.targets.to(device, non_blocking=True)
        return Batch(
            self.tokens.to(device, non_blocking=True),
            self.labels.to(device, non_blocking=True),
            targets,
        )

    def pin_memory(self) -> "Batch":
        targets = None if self.targets is None else self.targets.pin_memory()
        return Batch(self.tokens.pin_memory(), self.labels.pin_memory(), targets)


@dataclass(frozen=True)
class Score:
    """The loss and accuracy of a model on some examples."""

    loss: float
    """Nats per labeled position: cross entropy, or the KL divergence from a target."""
    accuracy: float
    """Fraction of the labeled positions that are right."""
    exact: float
    """Fraction of the examples in which every labeled position is right."""
    slices: dict[str, dict[str, float]] = field(default_factory=dict)
    """Accuracy by slice, such as {"pairs": {"1": 1.0, "2": 0.98}}."""


def batch_of(examples: Examples) -> Batch:
    """Turn examples into tensors on the CPU."""
    targets = None if examples.targets is None else torch.from_numpy(examples.targets)
    return Batch(
        torch.from_numpy(np.ascontiguousarray(examples.tokens)).long(),
        torch.from_numpy(np.ascontiguousarray(examples.labels)).long(),
        targets,
    )


def loss_of(logits_BLV: torch.Tensor, batch: Batch, *, reduction: str = "mean") -> torch.Tensor:
    """Return the mean loss over the labeled positions."""
    if batch.targets is None:
        return F.cross_entropy(
            logits_BLV.flatten(0, 1).float(),
            batch.labels.flatten(),
            ignore_index=IGNORE_INDEX,
            reduction=reduction,
        )
    logs = torch.log_softmax(logits_BLV.float(), -1)
    divergence_BL = (batch.targets.exp() * (batch.targets - logs)).sum(-1)
    return divergence_BL.mean() if reduction == "mean" else divergence_BL.sum()


@torch.no_grad()
def evaluate(
    model: nn.Module,
    examples: Examples,
    device: torch.device,
    autocast: torch.autocast,
    *,
    share: float = 1.0,
) -> Score:
    """Score all of the examples; `share` scales the batch size down for long sequences."""
    model.eval()
    loss, right, rows = 0.0, [], max(1, int(_BATCH * share))
    for first in range(0, len(examples), rows):
        batch = batch_of(examples.take(slice(first, first + rows))).to(device)
        with autocast:
            logits_BLV = model(batch.tokens)
        loss += loss_of(logits_BLV, batch, reduction="sum").item()
        right.append((logits_BLV.argmax(-1) == batch.labels).cpu().numpy())
    model.train()
    right, asked = np.concatenate(right), examples.labels != IGNORE_INDEX
    return Score(
        loss=loss / int(asked.sum()),
        accuracy=float(right[asked].mean()),
        exact=float((right | ~asked).all(1).mean()),
        slices={
            name: _by_value(np.broadcast_to(values, asked.shape)[asked], right[asked])
            for name, values in examples.slices.items()
        },
    )


def _by_value(values: np.ndarray, right: np.ndarray) -> dict[str, float]:
    return {str(value): float(right[values == value].mean()) for value in np.unique(values)}
