"""Batches on their way to a GPU.

torchtitan's train_step copies each microbatch by `tensor.to(device)`, from memory that the GPU
cannot read by itself, so that the host waits until the device has done all earlier work. Here the
loader's memory is pinned and a copy starts when the batch is fetched, behind the work that is
already queued; the host continues and queues the next step.
"""

from collections.abc import Iterable, Iterator

import torch

from mixit_titan.data.batches import Batch


class Copied(torch.Tensor):
    """A tensor on the host whose copy to the device is in flight: `to` returns the copy."""

    copy: torch.Tensor

    def to(self, *_: object, **__: object) -> torch.Tensor:
        """The copy on the device."""
        return self.copy


def start_copies(batches: Iterable[Batch], device: torch.device) -> Iterator[Batch]:
    """The same batches, each with a copy to the device already under way."""
    for inputs, labels in batches:
        yield (
            {name: _copied(value, device) for name, value in inputs.items()},
            _copied(labels, device),
        )


def _copied(host: torch.Tensor, device: torch.device) -> Copied:
    copied = host.as_subclass(Copied)
    copied.copy = host.to(device, non_blocking=True)
    return copied
