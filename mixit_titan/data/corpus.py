"""The documents of a corpus: which ones, in which order, for training or for validation."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from mixit_titan.data.fetching import FETCHED, FetchedFiles
from mixit_titan.data.files import LocalFiles
from mixit_titan.data.hub import HubFiles
from mixit_titan.data.readers import (
    has_records,
    read_pieces,
    read_records,
    read_row_group,
    row_groups,
)
from mixit_titan.data.splits import (
    ByCount,
    ByText,
    Document,
    FileEnd,
    Part,
    Piece,
    RowGroup,
    assigned,
    by_count,
    held_out,
    last_part,
)
from mixit_titan.data.stores import StoreFiles
from mixit_titan.data.wikitext import read_articles
from mixit_titan.errors import ConfigError

_LARGE = 2**26  # bytes of the texts in a row group
_PART = re.compile(r"(?:.*[/._-])?(train|valid|test)(?:ation)?[._-].*")


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Files, and the rules that turn them into documents."""

    name: str
    files: LocalFiles | HubFiles | StoreFiles | FetchedFiles
    """Remote files must be `fetched_to` a folder before documents are read."""
    text_key: str = "text"
    """The key of the text in a record."""
    train_documents: int | None = None
    validation_documents: int | None = None
    articles: bool = False
    """WikiText's format: lines that form articles, in one file per split."""
    words: tuple[str, ...] = ()
    """How a command line names the corpus, in any working directory."""

    def settings(self) -> dict[str, Any]:
        """Everything that determines the documents."""
        return {
            "corpus": self.name,
            **self.files.describe(),
            "text_key": self.text_key,
            "train_documents": self.train_documents,
            "validation_documents": self.validation_documents,
            "articles": self.articles,
        }

    def at(self, state: str) -> "Corpus":
        """The corpus with the files that a preparation began with: the hub may have newer ones."""
        if not isinstance(self.files, HubFiles):
            return self
        return replace(self, files=replace(self.files, revision=state))

    def fetched_to(self, folder: Path, *, keep: bool) -> "Corpus":
        """The corpus with its remote files fetched into a folder as they are needed."""
        if isinstance(self.files, LocalFiles):
            return self
        return replace(self, files=FetchedFiles(self.files, folder / FETCHED, keep=keep))

    def expected(self) -> tuple[Literal["documents", "bytes"], int | None]:
        """The number of documents, or roughly of bytes, if it is known before they are read."""
        if self.train_documents is not None and not self.articles:
            return "documents", self.train_documents + self.validation_documents
        plain = isinstance(self.files, LocalFiles) and self.train_documents is None
        if plain and not any(n.endswith((".gz", ".zst", ".parquet")) for n in self.files.names):
            return "bytes", self.files.bytes
        return "bytes", None

    def documents(self) -> Iterator[Document]:
        """The documents, always in the same order. The splits are disjoint."""
        for part in self.parts():
            if isinstance(part, Document):
                yield part
            elif isinstance(part, RowGroup):
                yield from part.documents()

    def parts(self) -> Iterator[Part]:
        """The documents, or row groups of tables that need not be read here, and the ends of files
        that are fetched."""
        if self.articles:
            return self._articles()
        if self.train_documents is not None:
            pieces = chain.from_iterable(map(self._pieces, self.files.names))
            rule = ByCount(self.train_documents, self.validation_documents)
            return by_count(pieces, rule, self.name)
        if len(self.files.names) == 1 and not has_records(self.files.names[0]):
            return self._parts()
        return self._folder()

    def _pieces(self, name: str) -> Iterator[Piece]:
        if not isinstance(self.files, FetchedFiles):
            yield from self._of_file(self.files.path(name))
        elif name in self.files.unneeded:
            yield FileEnd(name, self.files.unneeded[name])
        else:
            yield from self._of_file(self.files.path(name))
            yield FileEnd(name)

    def _of_file(self, file: Path) -> Iterator[bytes | RowGroup]:
        if not has_records(file.name):
            yield from read_pieces(file)
            return
        if file.suffix != ".parquet":
            yield from read_records(file, self.text_key)
            return
        for number, (first, rows, size) in enumerate(row_groups(file, self.text_key)):
            if size > _LARGE:  # too large to hand to one process
                yield from read_row_group(file, number, self.text_key, first)
            else:
                yield RowGroup(
                    file=file, number=number, first_row=first, rows=rows, text_key=self.text_key
                )

    def _folder(self) -> Iterator[Part]:
        """The split of a text file is determined by the hash of its name, that of a record by the
        hash of its text."""
        records = [name for name in self.files.names if has_records(name)]
        texts = [name for name in self.files.names if not has_records(name)]
        validation = held_out(texts)
        for name in texts:
            split = "validation" if name in validation else "train"
            for piece in self._pieces(name):
                yield piece if isinstance(piece, FileEnd) else Document(split, piece)
        first = (read_records(self.files.path(name), self.text_key) for name in records)
        known = getattr(self.files, "unneeded", {})
        known = sum(known[name].total() for name in records if name in known)
        rule = ByText.of(chain.from_iterable(first), known)
        yield from assigned(chain.from_iterable(map(self._pieces, records)), rule)

    def _parts(self) -> Iterator[Document]:
        """The last part of a single text file is for validation."""
        file = self.files.path(self.files.names[0])
        cut = last_part(file)
        yield from (Document("train", text) for text in read_pieces(file, 0, cut))
        yield from (Document("validation", text) for text in read_pieces(file, cut))

    def _articles(self) -> Iterator[Document]:
        counts = {"train": self.train_documents, "validation": self.validation_documents}
        for split, names in wikitext_splits(self.files.names, self.name).items():
            articles = read_articles(map(self.files.path, names), self.text_key)
            for text in islice(articles, counts.get(split)):
                yield Document(split, text)


def wikitext_splits(names: tuple[str, ...], source: str) -> dict[str, list[str]]:
    """The files of each split, by their names."""
    splits: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    for name in names:
        part = _PART.fullmatch(name)
        if part:
            splits["validation" if part[1] == "valid" else part[1]].append(name)
    if not splits["train"] or not splits["validation"]:
        raise ConfigError(
            f"{source} has no files for training and validation: their names must contain 'train' "
            "and 'valid', as in train.txt, wiki.valid.raw or validation-00000.parquet"
        )
    return {split: found for split, found in splits.items() if found}
