"""Texts to token ids, by several processes; the results come in the order of the texts."""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

import numpy as np
from torchtitan.components.tokenizer import BaseTokenizer, HuggingFaceTokenizer

from mixit_titan.data.splits import Document
from mixit_titan.errors import ConfigError

_BATCH = 2**18  # characters that a worker gets at once
_AHEAD = 4  # batches a worker, that may be done before the first of them is written


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
        parts = [self._ids(document.text) for document in documents]
        return EncodedBatch(
            [document.split for document in documents],
            np.concatenate(parts),
            np.array([len(part) for part in parts]),
            np.array([len(document.text.encode()) for document in documents]),
        )

    def _ids(self, text: str) -> np.ndarray:
        if isinstance(self.tokenizer, HuggingFaceTokenizer):
            ids = self.tokenizer.tokenizer.encode(text, add_special_tokens=False).ids
        else:
            ids = self.tokenizer.encode(text)
        ids.append(self.tokenizer.eos_id)
        return np.array(ids, dtype=self.dtype)


def encoded(
    documents: Iterable[Document], encoder: Encoder, workers: int
) -> Iterator[EncodedBatch]:
    batches = _batches(documents)
    if workers == 1:
        yield from map(encoder.encode, batches)
        return
    with _processes(encoder, workers) as idle:
        yield from _in_order(batches, idle)


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


def _in_order(batches: Iterator[list[Document]], idle: list[Connection]) -> Iterator[EncodedBatch]:
    """A worker has one batch at a time: it never sends while it is sent to, so neither waits for
    the other. The next batch is read before a worker asks for it."""
    busy: dict[Connection, int] = {}
    done: dict[int, EncodedBatch] = {}
    given = written = 0
    ahead = _AHEAD * len(idle)
    following = next(batches, None)
    while following is not None or busy or done:
        while idle and following is not None and given - written < ahead:
            worker = idle.pop()
            _send(worker, following)
            busy[worker] = given
            given, following = given + 1, next(batches, None)
        for worker in wait(list(busy)):
            done[busy.pop(worker)] = _receive(worker)
            idle.append(worker)
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
    except (EOFError, ConnectionError):
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
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            connection.send(encoder.encode(connection.recv()))
