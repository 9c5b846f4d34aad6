"""Numbers that a device computes in one step and the host reads in the next."""

from collections import deque

import torch


class Late:
    """Hands out numbers one step late: those of a step are available once the next step has been
    queued, so that the host waits only for a step that is over, or nearly so. On a CPU there is no
    delay."""

    def __init__(self, device: torch.device) -> None:
        self.lag = 0 if device.type == "cpu" else 1
        self._module = torch.get_device_module(device)
        self._waiting: deque[tuple[int, torch.Tensor, torch.Event | None]] = deque()

    def put(self, step: int, *numbers: torch.Tensor) -> None:
        """Store one-element tensors. Numbers that nobody took in time are dropped."""
        values = torch.stack([number.detach().reshape(()).double() for number in numbers])
        event = None
        if self.lag:
            pinned = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            values = pinned.copy_(values, non_blocking=True)
            event = self._module.Event()
            event.record()
        self._waiting.append((step, values, event))
        while len(self._waiting) > self.lag + 1:
            self._waiting.popleft()

    def take(self, *, all_of_them: bool = False) -> tuple[int, list[float]] | None:
        """A step and its numbers, once; None if none are available yet. `all_of_them` includes
        those that the host must wait for."""
        if len(self._waiting) <= (0 if all_of_them else self.lag):
            return None
        step, values, event = self._waiting.popleft()
        if event is not None:
            event.synchronize()
        return step, values.tolist()
