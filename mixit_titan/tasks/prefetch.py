"""Batches that are made while the model works on earlier ones."""

import queue
import threading
from collections.abc import Iterator

from mixit_titan.tasks.evaluation import Batch, batch_of
from mixit_titan.tasks.examples import Stream

_READY = 4  # batches that wait at most


class Ahead:
    """The batches of some steps of a stream, made by a thread of its own.

    `close` ends the thread; an error in it is raised where the batch is asked for.
    """

    def __init__(self, stream: Stream, steps: range, size: int, *, pin: bool) -> None:
        """`pin`: in memory that a GPU copies from by itself."""
        self._made: queue.Queue[Batch | Exception | None] = queue.Queue(_READY)
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._make, args=(stream, steps, size, pin), daemon=True
        )
        self._thread.start()

    def __iter__(self) -> Iterator[Batch]:
        while True:
            made = self._made.get()
            if made is None:
                return
            if isinstance(made, Exception):
                raise made
            yield made

    def close(self) -> None:
        self._closed.set()
        while not self._made.empty():
            self._made.get_nowait()
        self._thread.join()

    def _make(self, stream: Stream, steps: range, size: int, pin: bool) -> None:
        try:
            for step in steps:
                batch = batch_of(stream.batch(step, size))
                self._put(_pinned(batch) if pin else batch)
                if self._closed.is_set():
                    return
            self._put(None)
        except Exception as error:
            self._put(error)

    def _put(self, made: Batch | Exception | None) -> None:
        while not self._closed.is_set():
            try:
                return self._made.put(made, timeout=0.1)
            except queue.Full:
                continue


def _pinned(batch: Batch) -> Batch:
    targets = None if batch.targets is None else batch.targets.pin_memory()
    return Batch(batch.tokens.pin_memory(), batch.labels.pin_memory(), targets)
