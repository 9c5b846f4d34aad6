"""Assigns documents to training and validation: disjoint, and the same every time."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from mixit_titan.data.readers import PIECE, before_character, opened, read_row_group
from mixit_titan.errors import ConfigError
from mixit_titan.hashing import text_hash

HELD_OUT = 20  # one document in this many is for validation
_LOW = 2**64 // HELD_OUT
_FEW = 256  # texts that are read before the first one is assigned
_END = 2**63

Wanted = Mapping[str, Sequence[range]]
"""Split -> the numbers of the wanted documents, in their order; a split that is not named is wanted
completely."""


class Document(NamedTuple):
    """A text and its split."""

    split: str
    text: bytes
    """In UTF-8."""


@dataclass(frozen=True)
class ByCount:
    """The first documents are for training, those after them for validation."""

    train: int
    validation: int

    def split(self, place: int, text: bytes) -> str | None:
        """The split of a document; None: it belongs to neither."""
        if place < self.train:
            return "train"
        return "validation" if place < self.train + self.validation else None

    def count(self, group: "RowGroup") -> Counter[str]:
        """The number of documents of each split in a row group."""
        end = group.place + group.rows
        train = max(0, min(end, self.train) - group.place)
        both = max(0, min(end, self.train + self.validation) - group.place)
        return Counter(train=train, validation=both - train)


@dataclass(frozen=True)
class ByText:
    """The hash of a text decides, so that a text that occurs twice is in one split only."""

    limit: int

    @classmethod
    def of(cls, texts: Iterable[bytes], known: int = 0) -> "ByText":
        """The rule for these texts. Only a few are read, and none if `known` of them are known to
        exist."""
        if known >= _FEW:
            return cls(_LOW)
        first = [text_hash(text) for text in islice(texts, _FEW)]
        # Among a few texts there may be none with a low hash: then the lowest is held out.
        return cls(_LOW if len(first) == _FEW else max(_LOW, min(first, default=0) + 1))

    def split(self, place: int, text: bytes) -> str:
        """The split of a text."""
        return "validation" if text_hash(text) < self.limit else "train"

    def count(self, group: "RowGroup") -> Counter[str]:
        """The number of documents of each split in a row group, which is read for it."""
        return Counter(document.split for document in group.documents())


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """Documents that are rows of a table, to be read by another process: it is much smaller to send
    than its documents."""

    file: Path
    number: int
    first_row: int
    rows: int
    text_key: str
    place: int = 0
    """The place of its first document in the corpus."""
    rule: ByCount | ByText | None = None
    wanted: dict[str, tuple[range, ...]] | None = None
    """Split -> the numbers of the documents in this group that are wanted; None: all."""

    def documents(self) -> Iterator[Document]:
        """Read the documents that are wanted."""
        numbers: Counter[str] = Counter()
        texts = read_row_group(self.file, self.number, self.text_key, self.first_row)
        for place, text in enumerate(texts, self.place):
            split = self.rule.split(place, text)
            if split is None:
                return
            if self.wanted is None:
                yield Document(split, text)
                continue
            if any(numbers[split] in some for some in self.wanted[split]):
                yield Document(split, text)
            numbers[split] += 1


@dataclass(frozen=True)
class FileEnd:
    """Comes after the documents of a file, which can be deleted once all of them are done."""

    name: str
    left_out: Counter[str] = field(default_factory=Counter)
    """The number of its documents, by split, that were skipped because they are not wanted."""


Piece = bytes | RowGroup | FileEnd
Part = Document | RowGroup | FileEnd


def assigned(pieces: Iterable[Piece], rule: ByCount | ByText) -> Iterator[Part]:
    """Texts and row groups with the splits of a rule."""
    place = 0
    for piece in pieces:
        if isinstance(piece, RowGroup):
            yield replace(piece, place=place, rule=rule)
            place += piece.rows
        elif isinstance(piece, FileEnd):
            yield piece
            place += piece.left_out.total()
        else:
            yield Document(rule.split(place, piece), piece)
            place += 1


def by_count(pieces: Iterable[Piece], rule: ByCount, source: str) -> Iterator[Part]:
    """As many documents as the rule says; no file is opened for more."""
    wanted, count = rule.train + rule.validation, 0
    for part in assigned(pieces, rule):
        yield part
        if isinstance(part, FileEnd):
            count += part.left_out.total()
        else:
            count += part.rows if isinstance(part, RowGroup) else 1
        if count >= wanted:
            return
    raise ConfigError(
        f"{source} has {count:,} documents, but {rule.train:,} for training and "
        f"{rule.validation:,} for validation were requested: set --train-documents and "
        "--validation-documents"
    )


def following(counts: Mapping[str, int]) -> Wanted:
    """All but the first documents of each split."""
    return {split: (range(count, _END),) for split, count in counts.items()}


def chosen(parts: Iterable[Part], wanted: Wanted) -> Iterator[Part]:
    """The documents that are wanted. A row group without any is skipped, so that one whose counts
    are known need not be read; nothing is read after the last wanted document."""
    before: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    for part in parts:
        if isinstance(part, FileEnd):
            yield replace(part, left_out=part.left_out + left_out)
            before += part.left_out
            left_out.clear()
        elif _all_follow(wanted, before):
            yield part
        elif isinstance(part, Document):
            if _inside(wanted, part.split, before[part.split], 1):
                yield part
            else:
                left_out[part.split] += 1
            before[part.split] += 1
        else:
            counts = part.rule.count(part)
            inside = {
                split: _inside(wanted, split, before[split], counts[split]) for split in counts
            }
            if any(inside.values()):
                yield replace(part, wanted=inside)
            left_out += counts - Counter({split: sum(map(len, inside[split])) for split in inside})
            before += counts
        if wanted and all(
            not some or before[split] >= some[-1].stop for split, some in wanted.items()
        ):
            return


def unneeded(
    names: Iterable[str], files: Mapping[str, Mapping[str, int]], wanted: Wanted
) -> dict[str, Counter[str]]:
    """The files without a wanted document, with their counts, among those whose documents of each
    split have been counted."""
    found = {}
    before: Counter[str] = Counter()
    for name in names:
        if name not in files:
            break
        counts = Counter(files[name])
        if not any(_inside(wanted, split, before[split], counts[split]) for split in counts):
            found[name] = counts
        before += counts
    return found


def _all_follow(wanted: Wanted, before: Counter[str]) -> bool:
    return all(
        some and before[split] >= some[-1].start and some[-1].stop == _END
        for split, some in wanted.items()
    )


def _inside(wanted: Wanted, split: str, first: int, count: int) -> tuple[range, ...]:
    """The wanted ones among `count` documents, numbered from the first of them."""
    some = wanted.get(split, (range(_END),))
    clipped = [range(max(r.start - first, 0), min(r.stop - first, count)) for r in some]
    return tuple(r for r in clipped if r)


def held_out(names: Iterable[str]) -> set[str]:
    """The validation files of a folder: those whose names have a low hash, and at least one. Files
    that are added later do not change the split of the others."""
    names = list(names)
    scores = {name: text_hash(name.encode()) for name in names}
    low = {name for name in names if scores[name] < _LOW}
    return low or set(sorted(names, key=scores.__getitem__)[:1])


def last_part(file: Path) -> int:
    """The byte of a single text file at which its validation part begins: after a line, else at a
    space, else at a character."""
    size = file.stat().st_size
    start = size - size // HELD_OUT
    with opened(file) as stream:
        stream.seek(max(0, start - 4))
        before = start - stream.tell()
        block = stream.read(PIECE)
    for mark, shift in ((b"\n", 1), (b" ", 0)):
        found = block.find(mark, before) + shift
        if found >= before + shift and start - before + found < size:
            return start - before + found
    return start - before + before_character(block, min(before, len(block) - 1)) if block else 0
