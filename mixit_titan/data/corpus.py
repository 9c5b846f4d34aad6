"""Documents of a corpus: the Python standard library's own sources, or text files on disk."""

import hashlib
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from mixit_titan.errors import ConfigError

Split = Literal["train", "validation"]

STDLIB = "stdlib"
_HELD_OUT = 20  # one document in so many is for validation


def documents(path: str, split: Split) -> Iterator[str]:
    """Texts of one split; the two splits are disjoint.

    In a folder a document is a file, and the hash of its name decides on its split, so that a split
    does not change when files are added. Of a single file the last part is for validation.
    """
    root = _root(path)
    if root.is_file():
        text = _read(root)
        cut = len(text) - len(text) // _HELD_OUT
        yield text[:cut] if split == "train" else text[cut:]
        return
    files = _files(path, root)
    held_out = _held_out(files, root)
    for file in files:
        if (file in held_out) == (split == "validation"):
            yield _read(file)


def check_corpus(path: str) -> None:
    """Raise a ConfigError if there is nothing to train or to validate on."""
    root = _root(path)
    if root.is_dir() and len(_files(path, root)) < 2:
        raise ConfigError(
            f"data.path = {path!r} has fewer than two .txt files: one is for training and one for "
            "validation at least; a single file can be named itself"
        )


def _root(path: str) -> Path:
    if path == STDLIB:
        return Path(sysconfig.get_path("stdlib"))
    if not Path(path).exists():
        raise ConfigError(
            f"data.path = {path!r} does not exist: name a text file, a folder of .txt files, "
            f"or {STDLIB!r} for the Python standard library's sources"
        )
    return Path(path)


def _files(path: str, root: Path) -> list[Path]:
    """The corpus as files, in a fixed order."""
    if path != STDLIB:
        return sorted(root.rglob("*.txt"))
    return sorted(root.glob("*.py"))


def _held_out(files: list[Path], root: Path) -> set[Path]:
    """The validation files: those whose name hashes low, and one at least."""

    def score(file: Path) -> int:
        digest = hashlib.sha256(file.relative_to(root).as_posix().encode()).digest()
        return int.from_bytes(digest[:8], "big")

    low = {file for file in files if score(file) < 2**64 // _HELD_OUT}
    return low or {min(files, key=score)}


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text (byte {error.start}): convert it") from error
