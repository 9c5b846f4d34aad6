"""Rank 0 of eight on one CPU, with streams that obey the rules of CUDA graph capture.

torchtitan captures the forward and backward of the second step (`training.disable_cuda_graphs` is
false on a GPU). What CUDA refuses then is refused here:

- a stream that is being captured waits for an event that was recorded before the capture began
  (cudaErrorStreamCaptureIsolation);
- the host reads a value of the device (`.item()`, `.tolist()`, `if tensor`, `x[mask]`, a copy to
  the host), or gives it values of its own (`torch.tensor`): copies that it waits for.

The process group is torch's fake one: collectives return at once. Of NCCL, the allocator and what
happens within a kernel, nothing is known here.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

RANKS = 8
CAPTURED = 2  # the call of forward and backward that torchtitan captures: the first one warms up
HOST_READS = (
    *("item", "tolist", "numpy", "cpu", "nonzero"),
    *("__bool__", "__int__", "__float__", "__index__", "__array__"),
)
"""Methods of a tensor. Some of them never reach the dispatcher."""
HOST_READS_BELOW = (
    *("_local_scalar_dense", "equal", "nonzero", "masked_select"),
    *("_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"),
)
"""Operators whose answer, or its size, the host waits for."""
HOST_VALUES = ("tensor", "as_tensor", "from_numpy")
"""Functions of torch that copy what the host has."""


class NotCapturable(RuntimeError):
    """What CUDA would answer."""


class Stream:
    """A stream is captured from when it waits for an event of a captured stream."""

    def __init__(self, priority: int = -1) -> None:
        self.captured, self.device_index = False, 0

    def record_event(self, event: "Event | None" = None) -> "Event":
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: "Event | None") -> None:
        if event is None or event.stream is None:
            return
        if event.captured:
            self.captured = True
        elif self.captured:
            raise NotCapturable("a captured stream waits for an event from before the capture")

    def wait_stream(self, other: "Stream") -> None:
        self.wait_event(other.record_event())

    def synchronize(self) -> None:
        if self.captured:
            raise NotCapturable("the host waits for a captured stream")


class Event:
    def __init__(self, *_: Any, **__: Any) -> None:
        self.stream: Stream | None = None
        self.captured = False

    def record(self, stream: Stream | None = None) -> None:
        self.stream = stream or torch.cpu._current_stream
        self.captured = self.stream.captured

    def wait(self, stream: Stream | None = None) -> None:
        (stream or torch.cpu._current_stream).wait_event(self)

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        if self.captured:
            raise NotCapturable("the host waits for a captured event")


class BelowTorch(TorchDispatchMode):
    """Sees the operators that one in C++ calls: `x[mask]` is a nonzero."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        name = func._overloadpacket.__name__
        masks = []
        if name.startswith(("index", "_index_put")) and isinstance(args[1], list | tuple):
            masks = [t for t in args[1] if t is not None and t.dtype in (torch.bool, torch.uint8)]
        if masks and len(args) > 2 and args[2].numel() == 1:
            masks = []  # x[mask] = 0 is a masked_fill_
        if masks or name in HOST_READS_BELOW:
            raise NotCapturable(f"the host reads a value of the device: {func}")
        return func(*args, **(kwargs or {}))


@contextmanager
def capture(stream: Stream) -> Iterator[None]:
    """Within, the stream is captured, and the host reads nothing."""

    def refuse(name: str) -> Callable[..., Any]:
        def read(*_: Any, **__: Any) -> Any:
            raise NotCapturable(f"the host reads a value of the device: {name}")

        return read

    stream.captured = True
    with pytest.MonkeyPatch.context() as patch, BelowTorch():
        for name in HOST_READS:
            patch.setattr(torch.Tensor, name, refuse(name))
        for name in HOST_VALUES:
            patch.setattr(torch, name, refuse(f"torch.{name}"))
        yield
    stream.captured = False


class NoAgreement:
    """Nobody asks a fake world to stop, and its other ranks have nothing to add."""

    def sums(self, *values: float) -> list[float]:
        return list(values)

    check = sums


READS: dict[str, Callable[[torch.Tensor], Any]] = {
    ".item()": lambda x: x.sum().item(),
    ".tolist()": lambda x: x.flatten()[:2].tolist(),
    ".cpu()": lambda x: x.cpu(),
    ".numpy()": lambda x: x.detach().numpy(),
    "if": lambda x: 1 if x.any() else 0,
    "int()": lambda x: int(x.sum()),
    "x[mask]": lambda x: x[x > 0],
    "torch.equal": lambda x: torch.equal(x, x + 1),
    "torch.tensor": lambda x: x + torch.tensor([1.0], device=x.device),
}
"""What a forward must not do with a tensor."""


FAKE = ("--comm.mode", "fake_backend", "--checkpoint.enable", "false")
FAKE += ("--checkpoint.async_mode", "disabled")


def emulate(folder: Path, call: int = CAPTURED) -> None:
    """In this process, which must be a fresh one: the second forward and backward of a trainer, or
    those of another `call`, are captured, and when they have been, `folder`/captured is written and
    the process ends."""
    from mixit_titan.runtime import trainer

    torch.cpu.Stream, torch.cpu.Event = Stream, Event
    torch.cpu._default_cpu_stream = torch.cpu._current_stream = Stream()
    torch.accelerator.current_stream = lambda *_: torch.cpu._current_stream
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(RANKS), "NGPU": str(RANKS)}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    trainer.Agreement, trainer.listen = NoAgreement, lambda: None
    body, calls = trainer.MixitTrainer._forward_backward_body, 0

    def counted(self: trainer.MixitTrainer, *arguments: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls != call:
            return body(self, *arguments)
        with capture(torch.cpu._current_stream):
            body(self, *arguments)
        (folder / "captured").touch()
        os._exit(0)  # what follows would be replayed, and not run again

    trainer.MixitTrainer._forward_backward_body = counted


def train_captured(
    config: str, overrides: list[str], folder: Path, read: str = "", call: int = CAPTURED
) -> None:
    """Train in a fresh process, until the capture. `read`: one of READS, for each block to do."""
    from mixit_titan.config.run import load_run
    from mixit_titan.model.llama import Block

    emulate(folder, call)
    if read:
        Block.add = lambda self, x, f: (READS[read](f), x + f)[1]
    load_run(config, [*overrides, *FAKE], world_size=RANKS).build().train()
