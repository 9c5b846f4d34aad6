"""Documents to token ids, by several processes; results come in the order of the documents.

A worker reads the row groups of a table by itself. Documents of other files are read by this
process and sent.
"""

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

import numpy as np

from mixit_titan.data.encoding import EncodedBatch, Encoder
from mixit_titan.data.fast_encoder import EncodersDiffer, FastEncoder
from mixit_titan.data.splits import FileEnd, Part, RowGroup
from mixit_titan.errors import ConfigError

_BATCH = 2**18  # bytes that a worker gets at once
_QUEUED = 2  # tasks of a worker: the current one, and one to continue with
_AHEAD = 4  # tasks per worker that may be in flight while the first of them is not done


class Texts(NamedTuple):
    """Texts of one split, in their order. The shards of the splits do not depend on each other."""

    split: str
    texts: list[bytes]


class DocumentDiffers(Exception):
    """Two encoders give a document different ids."""

    def __init__(self, split: str, document: int) -> None:
        super().__init__(split, document)
        self.split, self.document = split, document
        """Its place among the documents of the split that have not been yielded yet."""


Task = Texts | RowGroup | FileEnd
Result = list[EncodedBatch] | FileEnd | ConfigError | DocumentDiffers


def encoded(
    parts: Iterable[Part], encoder: Encoder | FastEncoder, workers: int
) -> Iterator[EncodedBatch | FileEnd]:
    """The documents of each split in their order, and the end of each file once it is no longer
    read."""
    tasks = _tasks(parts)
    if workers == 1:
        results = (_result(task, encoder) for task in tasks)
        yield from _given(results)
        return
    with _processes(encoder, workers) as connections:
        yield from _given(_in_order(tasks, connections))


def _given(results: Iterable[Result]) -> Iterator[EncodedBatch | FileEnd]:
    for result in results:
        if isinstance(result, Exception):
            raise result
        yield from [result] if isinstance(result, FileEnd) else result


def _tasks(parts: Iterable[Part]) -> Iterator[Task]:
    texts: dict[str, list[bytes]] = {}
    sizes: Counter[str] = Counter()
    for part in parts:
        if isinstance(part, RowGroup | FileEnd):
            yield from map(Texts, texts.keys(), texts.values())  # what comes before it
            texts, sizes = {}, Counter()
            yield part
            continue
        split, text = part
        texts.setdefault(split, []).append(text)
        sizes[split] += len(text) + 1
        if sizes[split] >= _BATCH:
            yield Texts(split, texts.pop(split))
            del sizes[split]
    yield from map(Texts, texts.keys(), texts.values())


def _result(task: Task, encoder: Encoder | FastEncoder) -> Result:
    if isinstance(task, FileEnd):
        return task
    splits: dict[str, list[bytes]] = {}
    batches = []
    try:
        if isinstance(task, Texts):
            splits[task.split] = task.texts
        else:
            for split, text in task.documents():
                splits.setdefault(split, []).append(text)
        for split, texts in splits.items():
            sizes = np.array([len(text) for text in texts])
            batches.append(EncodedBatch(split, *encoder.encode(texts), sizes))
    except EncodersDiffer as error:
        return DocumentDiffers(split, error.document)
    except ConfigError as error:
        return error
    return batches


def _in_order(tasks: Iterator[Task], workers: list[Connection]) -> Iterator[Result]:
    given: dict[Connection, deque[int]] = {worker: deque() for worker in workers}
    done: dict[int, Result] = {}
    number = finished = 0
    following = next(tasks, None)
    while following is not None or number > finished:
        free = min(workers, key=lambda worker: len(given[worker]))
        ahead = number - finished < _AHEAD * len(workers)
        if isinstance(following, FileEnd):
            done[number] = following
            number, following = number + 1, next(tasks, None)
            continue
        if following is not None and ahead and len(given[free]) < _QUEUED:
            with _alive():
                _send_task(free, following)
            given[free].append(number)
            number, following = number + 1, next(tasks, None)
            continue
        for worker in wait([worker for worker, numbers in given.items() if numbers]):
            with _alive():
                done[given[worker].popleft()] = _receive_result(worker)
        while finished in done:
            yield done.pop(finished)
            finished += 1


def _send_task(connection: Connection, task: Task) -> None:
    """Texts are sent as bytes, because pickling would copy them once more at each end."""
    if isinstance(task, Texts):
        connection.send((task.split, [len(text) for text in task.texts]))
        connection.send_bytes(b"".join(task.texts))
    else:
        connection.send(task)


def _receive_task(connection: Connection) -> Task:
    task = connection.recv()
    if isinstance(task, RowGroup):
        return task
    split, sizes = task
    joined = connection.recv_bytes()
    ends = np.cumsum(sizes).tolist()
    return Texts(split, [joined[end - size : end] for size, end in zip(sizes, ends, strict=True)])


def _send_result(connection: Connection, result: Result) -> None:
    if isinstance(result, Exception):
        connection.send(result)
        return
    connection.send([(b.split, b.tokens.dtype.str, b.lengths, b.bytes) for b in result])
    for batch in result:
        rest = memoryview(batch.tokens.view(np.uint8))
        while rest:
            rest = rest[os.write(connection.fileno(), rest) :]


def _receive_result(connection: Connection) -> Result:
    result = connection.recv()
    if isinstance(result, Exception):
        return result
    return [
        EncodedBatch(split, _receive_tokens(connection, dtype, lengths.sum()), lengths, sizes)
        for split, dtype, lengths, sizes in result
    ]


def _receive_tokens(connection: Connection, dtype: str, count: int) -> np.ndarray:
    """Read tokens into place: `recv_bytes` would copy them three times."""
    tokens = np.empty(count, dtype)
    rest = memoryview(tokens.view(np.uint8))
    while rest:
        size = os.readv(connection.fileno(), [rest])
        if size == 0:
            raise EOFError
        rest = rest[size:]
    return tokens


@contextlib.contextmanager
def _alive() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError):  # a plain OSError if a message was truncated
        raise ConfigError(
            "a worker process died, perhaps for lack of memory: run the same command again to "
            "resume, with fewer --workers"
        ) from None


@contextlib.contextmanager
def _processes(encoder: Encoder | FastEncoder, workers: int) -> Iterator[list[Connection]]:
    """Workers are forked, so that they share the tokenizer's tables. They end when this end of
    their pipe is closed, even by the death of this process."""
    context = multiprocessing.get_context("fork")
    ours: list[Connection] = []
    processes = []
    try:
        for _ in range(workers):
            here, there = context.Pipe()
            ours.append(here)
            process = context.Process(target=_work, args=(encoder, there, ours), daemon=True)
            process.start()
            processes.append(process)
            there.close()
        yield list(ours)
    finally:
        for connection in ours:
            connection.close()
        for process in processes:
            process.join()


def _work(encoder: Encoder | FastEncoder, connection: Connection, others: list[Connection]) -> None:
    for other in others:
        other.close()  # otherwise this process would keep the pipes of the others open
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
    # A thread receives tasks: otherwise both ends could wait for the other to receive.
    threading.Thread(target=_take, args=(connection, tasks), daemon=True).start()
    # Another sends results: the next task need not wait while the parent syncs a shard.
    results: queue.Queue[Result] = queue.Queue(maxsize=1)
    threading.Thread(target=_give, args=(connection, results), daemon=True).start()
    while (task := tasks.get()) is not None:
        results.put(_result(task, encoder))


def _take(connection: Connection, tasks: queue.SimpleQueue) -> None:
    """Receive tasks until the other end is closed, even in the middle of a message (a plain
    OSError)."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            tasks.put(_receive_task(connection))
    tasks.put(None)


def _give(connection: Connection, results: queue.Queue[Result]) -> None:
    """Send results until the other end is closed."""
    try:
        while True:
            _send_result(connection, results.get())
    except ConnectionError:
        os._exit(0)
