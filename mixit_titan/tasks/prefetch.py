"""Batches that are made in a thread while the model works on earlier ones."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from mixit_titan.tasks.evaluation import Batch, batch_of
from mixit_titan.tasks.examples import Stream

_READY = 4  # batches that wait, at most


def prefetched(stream: Stream, steps: range, size: int, *, pin: bool) -> Iterator[Batch]:
    """Yield the batches of some steps, made by one thread. An error in the thread is raised when
    its batch is requested; closing the iterator ends the thread. `pin`: put them in pinned
    memory."""

    def make(step: int) -> Batch:
        batch = batch_of(stream.batch(step, size))
        return batch.pin_memory() if pin else batch

    thread = ThreadPoolExecutor(max_workers=1)
    waiting: deque[Future[Batch]] = deque()
    try:
        for step in steps:
            waiting.append(thread.submit(make, step))
            if len(waiting) > _READY:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        thread.shutdown(cancel_futures=True)
