"""Writes token shards so that each is either complete or absent."""

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from mixit_titan.data.corpus import Corpus
from mixit_titan.data.encoding import EncodedBatch, Encoder
from mixit_titan.data.fast_encoder import FastEncoder
from mixit_titan.data.fetching import AT_ONCE, FetchedFiles
from mixit_titan.data.journal import Journal
from mixit_titan.data.shards import Shard
from mixit_titan.data.splits import FileEnd, chosen, following, unneeded
from mixit_titan.data.workers import DocumentDiffers, encoded
from mixit_titan.errors import ConfigError
from mixit_titan.files import sync_folder, writing

_BUFFER = 2**20


class ShardFile:
    """One file of a shard, under a temporary name until it is on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.part = path.with_name(f".{path.name}.part")
        self.file: BinaryIO = self.part.open("wb", buffering=_BUFFER)
        self.hash = hashlib.sha256()

    def write(self, values: np.ndarray) -> None:
        """Append values."""
        self.file.write(values)
        self.hash.update(values)

    def finish(self) -> str:
        """Flush the file to disk, give it its name and return its checksum."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        self.part.replace(self.path)
        return self.hash.hexdigest()

    def discard(self) -> None:
        """Delete the file."""
        with contextlib.suppress(OSError):  # buffered data may not fit on the disk
            self.file.close()
        self.part.unlink(missing_ok=True)


class SplitWriter:
    """Writes the shards of one split. A shard ends with the document that brings it to the
    journal's `shard_tokens`, so that no document is in two shards. A shard that is incomplete on
    exit is removed."""

    def __init__(self, journal: Journal, split: str) -> None:
        self.journal, self.split, self.folder = journal, split, journal.folder
        self.shard_tokens: int = journal.settings["shard_tokens"]
        self.files: dict[str, ShardFile] = {}

    @property
    def name(self) -> str:
        """The name of the shard that is being written."""
        return f"{self.split}-{len(self.journal.shards.get(self.split, [])):05}"

    def add(self, batch: EncodedBatch) -> None:
        """Write a batch, to as many shards as it fills."""
        ends = np.cumsum(batch.lengths)
        document = token = 0  # of the batch, written so far
        while document < len(ends):
            if not self.files:
                self._begin()
            filling = int(np.searchsorted(ends, token + self.shard_tokens - self.tokens))
            some = slice(document, min(filling + 1, len(ends)))
            end = int(ends[some.stop - 1])
            self.files["tokens"].write(batch.tokens[token:end])
            self.files["ends"].write((ends[some] - token + self.tokens).astype("<u8"))
            self.documents += some.stop - document
            self.tokens += end - token
            self.bytes += int(batch.bytes[some].sum())
            document, token = some.stop, end
            if self.tokens >= self.shard_tokens:
                self.finish()

    def _begin(self) -> None:
        self.documents = self.tokens = self.bytes = 0
        for ending in ("tokens", "ends"):
            self.files[ending] = ShardFile(self.folder / f"{self.name}.{ending}")

    def finish(self) -> None:
        """Finish the current shard, if there is one."""
        if not self.files:
            return
        shard = Shard(
            name=self.name,
            documents=self.documents,
            tokens=self.tokens,
            bytes=self.bytes,
            sha256={ending: file.finish() for ending, file in self.files.items()},
        )
        sync_folder(self.folder)
        self.files = {}
        self.enter(shard)

    def enter(self, shard: Shard) -> None:
        """Record a shard that is on disk."""
        self.journal.add(self.split, shard)

    def __enter__(self) -> "SplitWriter":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files.values():
            file.discard()


def write_shards(
    journal: Journal,
    corpus: Corpus,
    encoder: Encoder | FastEncoder,
    workers: int,
    on_batch: Callable[[EncodedBatch], None],
) -> None:
    """Write the shards that the journal does not have yet."""
    writers: dict[str, SplitWriter] = {}
    done = journal.documents()
    wanted = following(done)
    files = FileUse(journal, corpus.files) if isinstance(corpus.files, FetchedFiles) else None
    with contextlib.ExitStack() as stack:
        if files is not None:
            stack.callback(corpus.files.stop)
        try:
            for batch in encoded(chosen(corpus.parts(), wanted), encoder, workers):
                if isinstance(batch, FileEnd):
                    files.end(batch)
                    continue
                with writing(journal.folder):
                    if batch.split not in writers:
                        writer = SplitWriter(journal, batch.split)
                        writers[batch.split] = stack.enter_context(writer)
                    writers[batch.split].add(batch)
                done[batch.split] += len(batch.lengths)
                if files is not None:
                    files.documents[batch.split] += len(batch.lengths)
                on_batch(batch)
        except DocumentDiffers as error:
            raise _differ(encoder, error, done) from None
        _check_splits({*writers, *journal.shards}, corpus)
        with writing(journal.folder):
            for writer in writers.values():
                writer.finish()


class FileUse:
    """Tracks which fetched files are completely in finished shards. Those are deleted, and are not
    fetched again when a preparation resumes."""

    def __init__(self, journal: Journal, files: FetchedFiles) -> None:
        self.journal, self.files = journal, files
        files.unneeded = self._in_shards()
        files.ahead = AT_ONCE
        self.documents: Counter[str] = Counter()
        """Documents by split in the file that is being read."""
        self.shards = 0

    def end(self, end: FileEnd) -> None:
        """Record the end of a file, and delete files that are no longer needed."""
        self.journal.files[end.name] = dict(self.documents + end.left_out)
        self.documents.clear()
        shards = sum(map(len, self.journal.shards.values()))
        if shards == self.shards:
            return
        self.shards = shards
        with writing(self.journal.folder):
            self.journal.write()  # which records that they are no longer needed
            for name in self._in_shards():
                self.files.release(name)

    def _in_shards(self) -> dict[str, Counter[str]]:
        wanted = following(self.journal.documents())
        return unneeded(self.files.names, self.journal.files, wanted)


def _differ(encoder: FastEncoder, error: DocumentDiffers, done: Counter[str]) -> ConfigError:
    number, exact = done[error.split] + error.document + 1, encoder.exact.name
    return ConfigError(
        f"gigatoken does not give document {number:,} of {error.split} the same ids as {exact}: "
        f"run the same command with --encoder {exact} to resume with that"
    )


def _check_splits(splits: set[str], corpus: Corpus) -> None:
    if not splits:
        raise ConfigError(f"{corpus.name} is empty: it contains no text")
    for split in ("train", "validation"):
        if split not in splits:
            raise ConfigError(
                f"{corpus.name} has too few documents: there is none for {split}; add some, or set "
                "--train-documents and --validation-documents"
            )
