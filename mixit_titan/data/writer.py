"""Token shards written so that each is whole or not there."""

import contextlib
import hashlib
import os
from pathlib import Path
from typing import BinaryIO

import numpy as np

from mixit_titan.data.disk import sync_folder
from mixit_titan.data.journal import Journal
from mixit_titan.data.shards import Shard

_BUFFER = 2**20


class ShardFile:
    """One file of a shard: under another name until it is on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.part = path.with_name(f".{path.name}.part")
        self.file: BinaryIO = self.part.open("wb", buffering=_BUFFER)
        self.hash = hashlib.sha256()

    def write(self, values: np.ndarray) -> None:
        data = values.tobytes()
        self.file.write(data)
        self.hash.update(data)

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

    def __init__(self, journal: Journal, split: str, dtype: np.dtype) -> None:
        self.journal, self.split, self.dtype = journal, split, dtype
        self.files: dict[str, ShardFile] = {}

    @property
    def name(self) -> str:
        return f"{self.split}-{len(self.journal.shards.get(self.split, [])):05}"

    def add(self, tokens: np.ndarray, text_bytes: int) -> None:
        """A document, with its end-of-text id."""
        if not self.files:
            self.documents = self.tokens = self.bytes = 0
            for ending in ("tokens", "ends"):
                self.files[ending] = ShardFile(self.journal.folder / f"{self.name}.{ending}")
        self.documents += 1
        self.tokens += len(tokens)
        self.bytes += text_bytes
        self.files["tokens"].write(tokens.astype(self.dtype, copy=False))
        self.files["ends"].write(np.array([self.tokens], dtype="<u8"))
        if self.tokens >= self.journal.settings["shard_tokens"]:
            self.finish()

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
        sync_folder(self.journal.folder)
        self.files = {}
        self.journal.add(self.split, shard)

    def __enter__(self) -> "SplitWriter":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files.values():
            file.discard()
