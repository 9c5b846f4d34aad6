"""Rank 0 of eight on one CPU, with streams that obey the rules of CUDA graph capture.

torchtitan captures the forward and backward of the second step (`training.disable_cuda_graphs` is
false on a GPU). What CUDA refuses then is refused here:

- a stream that is being captured waits for an event that was recorded before the capture began
  (cudaErrorStreamCaptureIsolation);
- the host reads a value of the device: `.item()`, `.tolist()`, `if tensor`, a copy to the host.

The process group is torch's fake one: collectives return at once. Of NCCL, the allocator and what
happens within a kernel, nothing is known here.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

RANKS = 8
CAPTURED = 2  # the call of forward and backward that torchtitan captures: the first one warms up
HOST_READS = (
    *("item", "tolist", "numpy", "cpu", "nonzero"),
    *("__bool__", "__int__", "__float__", "__index__", "__array__"),
)


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


@contextmanager
def capture() -> Iterator[None]:
    """Within, the current stream is captured, and the host reads nothing."""

    def refuse(name: str) -> Callable[..., Any]:
        def read(*_: Any, **__: Any) -> Any:
            raise NotCapturable(f"the host reads a value of the device: {name}")

        return read

    stream = torch.cpu._current_stream
    stream.captured = True
    with pytest.MonkeyPatch.context() as patch:
        for name in HOST_READS:
            patch.setattr(torch.Tensor, name, refuse(name))
        yield
    stream.captured = False


class NoAgreement:
    """Nobody asks a fake world to stop."""

    def check(self) -> None:
        pass


def train_captured(config: str, overrides: list[str], folder: Path) -> None:
    """Train in this process, which must be a fresh one, until the second forward and backward have
    been captured, and write `folder`/captured then."""
    from mixit_titan.config.run import load_run
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
        if calls != CAPTURED:
            return body(self, *arguments)
        with capture():
            body(self, *arguments)
        (folder / "captured").touch()
        os._exit(0)  # what follows would be replayed, and not run again

    trainer.MixitTrainer._forward_backward_body = counted
    fake = ["--comm.mode", "fake_backend", "--checkpoint.enable", "false"]
    run = load_run(config, [*overrides, *fake], world_size=RANKS)
    run.build().train()


if __name__ == "__main__":
    train_captured(sys.argv[1], sys.argv[3:], Path(sys.argv[2]))
