"""The processes that tokenise: what they read and hold, and how they end."""

import multiprocessing
import os
import queue
import struct
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixit_titan.data import corpus as corpora
from mixit_titan.data import readers, workers
from mixit_titan.data.encoding import Encoder
from mixit_titan.data.prepare import prepare
from mixit_titan.data.sources import find_corpus
from mixit_titan.data.splits import Document, RowGroup, chosen, following
from mixit_titan.data.tokenizers import ByteTokenizer
from mixit_titan.data.workers import encoded
from mixit_titan.errors import ConfigError
from tests.data.tokens import content, stories

MADE = stories(300)


@pytest.fixture
def cut_short() -> Connection:
    """A pipe whose other end was killed while it sent a message of 100 bytes."""
    here, there = multiprocessing.Pipe()
    os.write(there.fileno(), struct.pack("!i", 100) + b"ten bytes.")
    there.close()
    return here


def test_a_worker_ends_with_the_one_that_sends(cut_short: Connection) -> None:
    tasks: queue.SimpleQueue = queue.SimpleQueue()
    workers._take(cut_short, tasks)
    assert tasks.get_nowait() is None


def test_a_worker_that_dies_while_it_sends_is_one_sentence(cut_short: Connection) -> None:
    message = r"a worker process died.*run the same command again"
    with pytest.raises(ConfigError, match=message), workers._alive():
        workers._receive_result(cut_short)


@pytest.mark.parametrize("count", [1, 2])
def test_no_more_texts_are_held_than_are_at_work(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(workers, "_BATCH", 1)  # a text is a task
    taken = 0

    def documents() -> Iterator[Document]:
        nonlocal taken
        for n in range(200):
            taken += 1
            yield Document("train", b"text %d" % n)

    encoder = Encoder(ByteTokenizer(), np.dtype("<u2"))
    given = []
    for batch in encoded(documents(), encoder, count):
        given.append(bytes(batch.tokens[:-1].astype(np.uint8)).decode())
        assert taken - len(given) <= workers._AHEAD * count
    assert given == [f"text {n}" for n in range(200)]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """300 texts in row groups of 32, beside 20 in lines."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    pq.write_table(pa.table({"text": MADE}), folder / "b.parquet", row_group_size=32)
    (folder / "a.jsonl").write_text("".join(f'{{"text": "line {n}"}}\n' for n in range(20)))
    return folder


@pytest.mark.parametrize("counts", [{}, {"train_documents": 200, "validation_documents": 50}])
def test_row_groups_are_read_by_workers_to_the_same_bytes(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: dict[str, int]
) -> None:
    corpus, arguments = find_corpus(str(table), **counts), {"shard_tokens": 999}
    groups = [part for part in corpus.parts() if isinstance(part, RowGroup)]
    assert len(groups) == (8 if counts else 10)
    with monkeypatch.context() as patch:  # every text is read here and sent
        patch.setattr(corpora, "_LARGE", 0)
        assert not any(isinstance(part, RowGroup) for part in corpus.parts())
        prepare(corpus, "bytes", tmp_path / "sent", workers=2, **arguments)
    for count in (1, 3):
        prepare(corpus, "bytes", tmp_path / str(count), workers=count, **arguments)
        assert content(tmp_path / str(count)) == content(tmp_path / "sent")


@pytest.mark.parametrize("counts", [{}, {"train_documents": 200, "validation_documents": 50}])
def test_finished_documents_of_row_groups_are_left_out(table: Path, counts: dict[str, int]) -> None:
    corpus = find_corpus(str(table), **counts)
    documents = list(corpus.documents())
    for train, validation in ((0, 0), (20, 0), (20, 3), (33, 1), (199, 4), (180, 5)):
        left = Counter(train=train, validation=validation)
        found = []
        for part in chosen(corpus.parts(), following(left)):
            found += [part] if isinstance(part, Document) else part.documents()
        expected = []
        for document in documents:
            if left[document.split]:
                left[document.split] -= 1
            else:
                expected.append(document)
        assert found == expected


def test_row_groups_of_a_known_count_are_not_read_to_be_left_out(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = find_corpus(str(table), train_documents=200, validation_documents=50)
    monkeypatch.setattr(readers, "_check_column", None)  # nothing can be read
    parts = list(chosen(corpus.parts(), following({"train": 190})))
    assert [(part.number, part.wanted) for part in parts] == [
        (5, {"train": (range(10, 20),), "validation": (range(12),)}),
        (6, None),
        (7, None),
    ]


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_wrong_in_a_row_group_is_one_sentence(tmp_path: Path, count: int) -> None:
    texts = [*MADE[:100], None, *MADE[100:]]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=32)
    corpus = find_corpus(str(tmp_path / "a.parquet"), train_documents=90, validation_documents=50)
    with pytest.raises(ConfigError, match=r"a\.parquet, row 101: 'text' is None"):
        prepare(corpus, "bytes", tmp_path / "out", workers=count)
