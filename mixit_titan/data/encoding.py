"""Texts to token ids, by several processes; the results come in the order of the texts."""

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

import numpy as np
from torchtitan.components.tokenizer import BaseTokenizer, HuggingFaceTokenizer

from mixit_titan.data.splits import Document
from mixit_titan.data.tokenizers import RankTokenizer
from mixit_titan.errors import ConfigError

_BATCH = 2**18  # bytes that a worker gets at once
_QUEUED = 2  # batches that a worker has: one at work, one to go on with
_AHEAD = 4  # batches a worker that may be under way while the first of them is not done


class EncodedBatch(NamedTuple):
    splits: list[str]
    """Of each document."""
    tokens: np.ndarray
    """Of all documents, each with its end-of-text id."""
    lengths: np.ndarray
    """Tokens of each document."""
    bytes: np.ndarray
    """Of each text, in UTF-8."""

    def documents(self) -> Iterator[tuple[str, np.ndarray, int]]:
        """Split, tokens and bytes of each."""
        ends = np.cumsum(self.lengths)
        parts = zip(self.splits, ends - self.lengths, ends, self.bytes, strict=True)
        for split, start, end, size in parts:
            yield split, self.tokens[start:end], int(size)


class Encoder:
    """Ids of the text alone: no token is added but the end of text, and what looks like a special
    token is text."""

    def __init__(self, tokenizer: BaseTokenizer, dtype: np.dtype) -> None:
        self.tokenizer, self.dtype = tokenizer, dtype
        if isinstance(tokenizer, HuggingFaceTokenizer):
            tokenizer.tokenizer.encode_special_tokens = True

    def encode(self, documents: list[Document]) -> EncodedBatch:
        parts = [self.ids(document.text.decode()) for document in documents]
        lengths = np.array([len(part) + 1 for part in parts])
        tokens = np.full(lengths.sum(), self.tokenizer.eos_id, dtype=self.dtype)
        for part, end in zip(parts, np.cumsum(lengths), strict=True):
            tokens[end - 1 - len(part) : end - 1] = part
        sizes = np.array([len(document.text) for document in documents])
        return EncodedBatch([document.split for document in documents], tokens, lengths, sizes)

    def ids(self, text: str) -> Sequence[int] | np.ndarray:
        if isinstance(self.tokenizer, HuggingFaceTokenizer):
            return self.tokenizer.tokenizer.encode(text, add_special_tokens=False).ids
        if isinstance(self.tokenizer, RankTokenizer):  # without a Python number for each id
            return self.tokenizer.encoding.encode_to_numpy(text, disallowed_special=())
        return np.frombuffer(text.encode(), dtype=np.uint8)


def encoded(
    documents: Iterable[Document], encoder: Encoder, workers: int
) -> Iterator[EncodedBatch]:
    batches = _batches(documents)
    if workers == 1:
        yield from map(encoder.encode, batches)
        return
    with _processes(encoder, workers) as connections:
        yield from _in_order(batches, connections)


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch, size = [], 0
    for document in documents:
        batch.append(document)
        size += len(document.text) + 1
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _in_order(
    batches: Iterator[list[Document]], workers: list[Connection]
) -> Iterator[EncodedBatch]:
    given: dict[Connection, deque[int]] = {worker: deque() for worker in workers}
    done: dict[int, EncodedBatch] = {}
    number = written = 0
    following = next(batches, None)
    while following is not None or number > written:
        free = min(workers, key=lambda worker: len(given[worker]))
        ahead = number - written < _AHEAD * len(workers)
        if following is not None and ahead and len(given[free]) < _QUEUED:
            _send(free, following)
            given[free].append(number)
            number, following = number + 1, next(batches, None)
            continue
        for worker in wait([worker for worker, numbers in given.items() if numbers]):
            done[given[worker].popleft()] = _receive(worker)
        while written in done:
            yield done.pop(written)
            written += 1


def _send(worker: Connection, batch: list[Document]) -> None:
    with _alive():
        worker.send(batch)


def _receive(worker: Connection) -> EncodedBatch:
    with _alive():
        return worker.recv()


@contextlib.contextmanager
def _alive() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError):  # a plain OSError where a message was cut short
        raise ConfigError(
            "a worker process died, perhaps for lack of memory: run the same command again to go "
            "on, with fewer --workers"
        ) from None


@contextlib.contextmanager
def _processes(encoder: Encoder, workers: int) -> Iterator[list[Connection]]:
    """Workers are forked: they share the tokenizer's tables. They end when this end of their pipe
    is closed, also by the death of this process."""
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


def _work(encoder: Encoder, connection: Connection, others: list[Connection]) -> None:
    for other in others:
        other.close()  # else this process would keep the pipes of the others open
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    batches: queue.SimpleQueue[list[Document] | None] = queue.SimpleQueue()
    # A thread of its own takes what is sent: else both ends could wait for the other to receive.
    threading.Thread(target=_take, args=(connection, batches), daemon=True).start()
    with contextlib.suppress(ConnectionError):
        while (batch := batches.get()) is not None:
            connection.send(encoder.encode(batch))


def _take(connection: Connection, batches: queue.SimpleQueue) -> None:
    """Until the other end is closed, also in the midst of a message: a plain OSError."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            batches.put(connection.recv())
    batches.put(None)
