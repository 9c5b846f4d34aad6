"""The files of a corpus on this machine."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from mixit_titan.data.readers import KINDS
from mixit_titan.errors import ConfigError
from mixit_titan.files import json_text

FILE_KEYS = {"files", "file_bytes", "files_digest"}
"""The keys of a corpus that describe files which may change."""


@dataclass(frozen=True)
class LocalFiles:
    """Files below one folder."""

    root: Path
    names: tuple[str, ...]
    """In a fixed order."""

    def path(self, name: str) -> Path:
        """The path of a file."""
        return self.root / name

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(self.path(name).stat().st_size for name in self.names)

    def describe(self) -> dict[str, Any]:
        """A description that is the same for two corpora whose files have the same names and
        sizes."""
        sizes = [(name, self.path(name).stat().st_size) for name in self.names]
        digest = hashlib.sha256(json_text(sizes).encode()).hexdigest()[:16]
        return {"files": len(sizes), "file_bytes": self.bytes, "files_digest": digest}

    def state(self) -> str:
        """A hash that changes when a file is written to."""
        times = [self.path(name).stat().st_mtime_ns for name in self.names]
        return hashlib.sha256(json_text([self.describe(), times]).encode()).hexdigest()[:16]


# As text, they would be tokenized with their quotes and braces, or would not be UTF-8.
_NOT_TEXT = (".json", ".csv", ".tsv", ".gz", ".zst", ".bz2", ".xz", ".zip", ".tar")


def local_files(path: Path, kinds: tuple[str, ...] = KINDS) -> LocalFiles:
    """A file, or the files in a folder and in those below it."""
    place = path.resolve()
    if place.is_relative_to("/proc") or place.is_relative_to("/sys"):
        raise ConfigError(
            f"{path} belongs to the kernel and is not a corpus: name a file or a folder"
        )
    if path.is_file():
        if path.name.endswith(_NOT_TEXT) and not path.name.endswith(kinds):
            raise ConfigError(f"{path} has an unsupported ending: it must be {', '.join(kinds)}")
        return LocalFiles(path.parent, (path.name,))
    if not path.is_dir():
        raise ConfigError(f"{path} is neither a file nor a folder: name one with the corpus")
    found = [file for file in _below(path) if file.name.endswith(kinds)]
    for file in found:
        if file.is_symlink() and not file.exists():
            raise ConfigError(f"{file} links to a file that does not exist: fix or remove the link")
        if not file.is_file():
            raise ConfigError(
                f"{file} is not a regular file: remove it, or name the folder of the files"
            )
    names = tuple(sorted(file.relative_to(path).as_posix() for file in found))
    if not names:
        raise ConfigError(f"{path} has no files that end in {', '.join(kinds)}")
    return LocalFiles(path, names)


def _below(folder: Path) -> Iterator[Path]:
    """All files below a folder, including those in linked folders, each once."""
    seen, top = set(), Path(os.path.realpath(folder))
    for root, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        folders.sort()
        place = os.path.realpath(root)
        if place in seen:
            folders.clear()
            continue
        if Path(place) in top.parents:  # otherwise all of the disk
            raise ConfigError(f"{root} links to a folder that contains {folder}: remove the link")
        seen.add(place)
        yield from (Path(root, name) for name in names)


def _refuse(error: OSError) -> NoReturn:
    raise ConfigError(f"{error.filename} cannot be read: {error.strerror}") from None
