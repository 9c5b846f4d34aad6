"""Token shards written so that each is whole or not there."""

import contextlib
import hashlib
import os
from pathlib import Path
from typing import BinaryIO

import numpy as np

from mixit_titan.data.encoding import EncodedBatch
from mixit_titan.data.journal import Journal
from mixit_titan.data.shards import Shard
from mixit_titan.files import sync_folder

_BUFFER = 2**20


class ShardFile:
    """One file of a shard: under another name until it is on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.part = path.with_name(f".{path.name}.part")
        self.file: BinaryIO = self.part.open("wb", buffering=_BUFFER)
        self.hash = hashlib.sha256()

    def write(self, values: np.ndarray) -> None:
        self.file.write(values)
        self.hash.update(values)

    def finish(self) -> str:
        """The checksum."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        self.part.replace(self.path)
        return self.hash.hexdigest()

    def discard(self) -> None:
        with contextlib.suppress(OSError):  # what is buffered may not fit on the disk
            self.file.close()
        self.part.unlink(missing_ok=True)


class SplitWriter:
    """The shards of one split. A shard is finished by the document that brings it to the journal's
    `shard_tokens`: no document lies in two. A shard that is unfinished on leaving is removed."""

    def __init__(self, journal: Journal, split: str) -> None:
        self.journal, self.split, self.folder = journal, split, journal.folder
        self.shard_tokens: int = journal.settings["shard_tokens"]
        self.files: dict[str, ShardFile] = {}

    @property
    def name(self) -> str:
        return f"{self.split}-{len(self.journal.shards.get(self.split, [])):05}"

    def add(self, batch: EncodedBatch) -> None:
        ends = np.cumsum(batch.lengths)
        document = token = 0  # of the batch, that are written
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
        """Say that it is on the disk."""
        self.journal.add(self.split, shard)

    def __enter__(self) -> "SplitWriter":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files.values():
            file.discard()
