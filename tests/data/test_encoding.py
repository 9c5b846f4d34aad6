"""The processes that tokenise: what they hold, and how they end."""

import multiprocessing
import os
import queue
import struct
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from mixit_titan.data import encoding
from mixit_titan.data.encoding import Encoder, encoded
from mixit_titan.data.splits import Document
from mixit_titan.data.tokenizers import ByteTokenizer, build_tokenizer
from mixit_titan.errors import ConfigError
from tests.data.test_tokenizers import write_ranks


@pytest.fixture
def cut_short() -> Connection:
    """A pipe whose other end was killed while it sent a message of 100 bytes."""
    here, there = multiprocessing.Pipe()
    os.write(there.fileno(), struct.pack("!i", 100) + b"ten bytes.")
    there.close()
    return here


def test_a_worker_ends_with_the_one_that_sends(cut_short: Connection) -> None:
    batches: queue.SimpleQueue = queue.SimpleQueue()
    encoding._take(cut_short, batches)
    assert batches.get_nowait() is None


def test_a_worker_that_dies_while_it_sends_is_one_sentence(cut_short: Connection) -> None:
    message = r"a worker process died.*run the same command again"
    with pytest.raises(ConfigError, match=message), encoding._alive():
        encoding._receive(cut_short)


def test_a_million_spaces_in_a_row(tmp_path: Path) -> None:
    """tiktoken gives up on them."""
    write_ranks(tmp_path / "a.tiktoken", 300)
    tokenizer = build_tokenizer(str(tmp_path / "a.tiktoken"))
    text = "one" + " " * 1_500_000 + "two"
    with pytest.raises(ValueError, match="stack size"):
        tokenizer.encoding.encode_to_numpy(text)
    ids = Encoder(tokenizer, np.dtype("<u2")).ids(text)
    assert tokenizer.decode(ids.tolist()) == text


@pytest.mark.parametrize("workers", [1, 2])
def test_no_more_texts_are_held_than_are_at_work(
    monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(encoding, "_BATCH", 1)  # a text is a batch
    taken = 0

    def documents() -> Iterator[Document]:
        nonlocal taken
        for n in range(200):
            taken += 1
            yield Document("train", b"text %d" % n)

    encoder = Encoder(ByteTokenizer(), np.dtype("<u2"))
    given = []
    for batch in encoded(documents(), encoder, workers):
        given.append(bytes(batch.tokens[:-1].astype(np.uint8)).decode())
        assert taken - len(given) <= encoding._AHEAD * workers
    assert given == [f"text {n}" for n in range(200)]
