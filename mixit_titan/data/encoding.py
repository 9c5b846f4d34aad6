"""Texts to token ids, by several processes; the results come in the order of the texts."""

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

import numpy as np
from torchtitan.components.tokenizer import BaseTokenizer, HuggingFaceTokenizer

from mixit_titan.data.rank_tokenizer import RankTokenizer
from mixit_titan.data.splits import Document
from mixit_titan.errors import ConfigError

_BATCH = 2**18  # bytes that a worker gets at once
_QUEUED = 2  # batches that a worker has: one at work, one to go on with
_AHEAD = 4  # batches a worker that may be under way while the first of them is not done
_SEARCHED = 2**16  # characters that tiktoken can search, whatever they are


class Batch(NamedTuple):
    """Texts of one split, in its order. The splits' shards do not depend on each other."""

    split: str
    texts: list[bytes]


class EncodedBatch(NamedTuple):
    split: str
    tokens: np.ndarray
    """Of all documents, each with its end-of-text id."""
    lengths: np.ndarray
    """Tokens of each document."""
    bytes: np.ndarray
    """Of each text, in UTF-8."""


class Encoder:
    """Ids of the text alone: no token is added but the end of text, and what looks like a special
    token is text."""

    def __init__(self, tokenizer: BaseTokenizer, dtype: np.dtype) -> None:
        self.tokenizer, self.dtype = tokenizer, dtype
        if isinstance(tokenizer, HuggingFaceTokenizer):
            tokenizer.tokenizer.encode_special_tokens = True

    def encode(self, texts: Iterable[bytes | memoryview]) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of all texts, each with its end-of-text id, and how many each has."""
        parts = [self.ids(str(text, "utf-8")) for text in texts]
        lengths = np.array([len(part) + 1 for part in parts])
        tokens = np.full(lengths.sum(), self.tokenizer.eos_id, dtype=self.dtype)
        for part, end in zip(parts, np.cumsum(lengths), strict=True):
            tokens[end - 1 - len(part) : end - 1] = part
        return tokens, lengths

    def ids(self, text: str) -> Sequence[int] | np.ndarray:
        if isinstance(self.tokenizer, HuggingFaceTokenizer):
            return self.tokenizer.tokenizer.encode(text, add_special_tokens=False).ids
        if isinstance(self.tokenizer, RankTokenizer):
            return self._by_ranks(text)
        return np.frombuffer(text.encode(), dtype=np.uint8)

    def _by_ranks(self, text: str) -> np.ndarray:
        """Without a Python number for each id."""
        try:
            return self.tokenizer.encoding.encode_to_numpy(text, disallowed_special=())
        except ValueError:  # tiktoken 0.14's search gives up on about a million spaces in a row
            half = len(text) // 2
            if half < _SEARCHED:
                raise
            return np.concatenate([self._by_ranks(text[:half]), self._by_ranks(text[half:])])


def encoded(
    documents: Iterable[Document], encoder: Encoder, workers: int
) -> Iterator[EncodedBatch]:
    """The documents of each split in their order."""
    batches = _batches(documents)
    if workers == 1:
        for split, texts in batches:
            yield EncodedBatch(split, *encoder.encode(texts), _sizes(texts))
        return
    with _processes(encoder, workers) as connections:
        yield from _in_order(batches, connections, encoder.dtype)


def _batches(documents: Iterable[Document]) -> Iterator[Batch]:
    batches: dict[str, list[bytes]] = {}
    sizes: Counter[str] = Counter()
    for split, text in documents:
        batches.setdefault(split, []).append(text)
        sizes[split] += len(text) + 1
        if sizes[split] >= _BATCH:
            yield Batch(split, batches.pop(split))
            del sizes[split]
    yield from map(Batch, batches.keys(), batches.values())


def _sizes(texts: list[bytes]) -> np.ndarray:
    return np.array([len(text) for text in texts])


def _in_order(
    batches: Iterator[Batch], workers: list[Connection], dtype: np.dtype
) -> Iterator[EncodedBatch]:
    given: dict[Connection, deque[tuple[int, str, np.ndarray]]] = {w: deque() for w in workers}
    done: dict[int, EncodedBatch] = {}
    number = written = 0
    following = next(batches, None)
    while following is not None or number > written:
        free = min(workers, key=lambda worker: len(given[worker]))
        ahead = number - written < _AHEAD * len(workers)
        if following is not None and ahead and len(given[free]) < _QUEUED:
            sizes = _sizes(following.texts)
            with _alive():
                _send(free, sizes, b"".join(following.texts))
            given[free].append((number, following.split, sizes))
            number, following = number + 1, next(batches, None)
            continue
        for worker in wait([worker for worker, numbers in given.items() if numbers]):
            with _alive():
                lengths, tokens = _receive(worker)
            place, split, sizes = given[worker].popleft()
            done[place] = EncodedBatch(split, np.frombuffer(tokens, dtype), lengths, sizes)
        while written in done:
            yield done.pop(written)
            written += 1


def _send(connection: Connection, counts: np.ndarray, values: bytes | np.ndarray) -> None:
    """As they are: what is pickled is copied once more at each end."""
    connection.send_bytes(counts)
    connection.send_bytes(values)


def _receive(connection: Connection) -> tuple[np.ndarray, bytes]:
    counts = np.frombuffer(connection.recv_bytes(), dtype=np.int64)
    return counts, connection.recv_bytes()


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
    batches: queue.SimpleQueue[tuple[np.ndarray, bytes] | None] = queue.SimpleQueue()
    # A thread of its own takes what is sent: else both ends could wait for the other to receive.
    threading.Thread(target=_take, args=(connection, batches), daemon=True).start()
    with contextlib.suppress(ConnectionError):
        while (batch := batches.get()) is not None:
            tokens, lengths = encoder.encode(_cut(*batch))
            _send(connection, lengths, tokens)


def _take(connection: Connection, batches: queue.SimpleQueue) -> None:
    """Until the other end is closed, also in the midst of a message: a plain OSError."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            batches.put(_receive(connection))
    batches.put(None)


def _cut(sizes: np.ndarray, texts: bytes) -> Iterator[memoryview]:
    start = 0
    for end in np.cumsum(sizes):
        yield memoryview(texts)[start:end]
        start = end
