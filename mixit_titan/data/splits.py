"""Which documents are for training and which for validation: disjoint, and the same every time."""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from mixit_titan.data.readers import PIECE, before_character
from mixit_titan.errors import ConfigError
from mixit_titan.hashing import text_hash

_HELD_OUT = 20  # one document in so many is for validation
_LOW = 2**64 // _HELD_OUT
_FEW = 256  # texts that are looked at before the first one is assigned


class Document(NamedTuple):
    split: str
    text: bytes
    """In UTF-8."""


def by_count(
    texts: Iterator[bytes], *, train: int, validation: int, source: str
) -> Iterator[Document]:
    """The first ones are for training, those that follow for validation."""
    count = 0
    for count, text in enumerate(islice(texts, train + validation), 1):
        yield Document("train" if count <= train else "validation", text)
    if count < train + validation:
        raise ConfigError(
            f"{source} has {count:,} documents and {train:,} for training and {validation:,} for "
            "validation were asked for: set --train-documents and --validation-documents"
        )


def by_text(texts: Iterable[bytes]) -> Iterator[Document]:
    """The hash of a text decides, so that one that occurs twice is in one split only."""
    following = iter(texts)
    first = list(islice(following, _FEW))
    few = {text_hash(text) for text in first}
    # Of few texts perhaps none has a low hash: then the lowest is held out.
    limit = _LOW if len(first) == _FEW else max(_LOW, min(few, default=0) + 1)
    for text in chain(first, following):
        yield Document("validation" if text_hash(text) < limit else "train", text)


def held_out(names: Iterable[str]) -> set[str]:
    """The validation files of a folder: those whose name hashes low, and one at least. Files that
    are added later do not change the split of the others."""
    names = list(names)
    scores = {name: text_hash(name.encode()) for name in names}
    low = {name for name in names if scores[name] < _LOW}
    return low or set(sorted(names, key=scores.__getitem__)[:1])


def last_part(file: Path) -> int:
    """The byte of a single text file at which its validation part begins: after a line, else at a
    space, else at a character."""
    size = file.stat().st_size
    start = size - size // _HELD_OUT
    with file.open("rb") as stream:
        stream.seek(max(0, start - 4))
        before = start - stream.tell()
        block = stream.read(PIECE)
    for mark, shift in ((b"\n", 1), (b" ", 0)):
        found = block.find(mark, before) + shift
        if found >= before + shift and start - before + found < size:
            return start - before + found
    return start - before + before_character(block, min(before, len(block) - 1)) if block else 0
