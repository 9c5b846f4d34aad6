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
    root = corpus_root(path)
    if root.is_file():
        text = _read(root)
        cut = len(text) - len(text) // _HELD_OUT
        yield text[:cut] if split == "train" else text[cut:]
        return
    chosen = [file for file in _files(path, root) if _split_of(file, root) == split]
    if not chosen:
        raise ConfigError(f"data.path = {path!r} has no files for the {split} split: add more")
    for file in chosen:
        yield _read(file)


def corpus_root(path: str) -> Path:
    """Where the corpus is, or an error that says that it is nowhere."""
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


def _split_of(file: Path, root: Path) -> Split:
    digest = hashlib.sha256(file.relative_to(root).as_posix().encode()).digest()
    held_out = int.from_bytes(digest[:8], "big") % _HELD_OUT == 0
    return "validation" if held_out else "train"


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text (byte {error.start}): remove it") from error
