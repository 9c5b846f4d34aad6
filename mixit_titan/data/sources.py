"""Corpora by name: FineWeb-edu, WikiText, the standard library's sources, or files on disk."""

import difflib
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from mixit_titan.data.files import HubFiles, LocalFiles, local_files
from mixit_titan.data.readers import (
    KINDS,
    has_records,
    read_pieces,
    read_records,
    read_row_group,
    row_groups,
)
from mixit_titan.data.splits import (
    HELD_OUT,
    ByCount,
    ByText,
    Document,
    RowGroup,
    assigned,
    by_count,
    held_out,
    last_part,
)
from mixit_titan.data.wikitext import read_articles
from mixit_titan.errors import ConfigError

STDLIB = "stdlib"
FINEWEB = "fineweb-edu"
WIKITEXT = ("wikitext-103", "wikitext-2")
_SUBSET = "sample-10BT"
_LARGE = 2**26  # bytes of the texts of a row group
_PAPER = {"train": 1_048_576, "validation": 4_096}
_PART = re.compile(r"(?:.*[/._-])?(train|valid|test)(?:ation)?[._-].*")


@dataclass(frozen=True, kw_only=True)
class Corpus:
    name: str
    files: LocalFiles | HubFiles
    text_key: str = "text"
    """Where a record has its text."""
    train_documents: int | None = None
    validation_documents: int | None = None
    articles: bool = False
    """WikiText's: lines that make up articles, in files for each split."""
    words: tuple[str, ...] = ()
    """How a command line names it, in any working directory."""

    def settings(self) -> dict[str, Any]:
        """What decides on the documents."""
        return {
            "corpus": self.name,
            **self.files.describe(),
            "text_key": self.text_key,
            "train_documents": self.train_documents,
            "validation_documents": self.validation_documents,
            "articles": self.articles,
        }

    def at(self, state: str) -> "Corpus":
        """With the files that a preparation began with: on the hub there may be newer ones."""
        if isinstance(self.files, LocalFiles):
            return self
        return replace(self, files=replace(self.files, revision=state))

    def expected(self) -> tuple[Literal["documents", "bytes"], int | None]:
        """How many documents, or roughly bytes, where that is known before they are read."""
        if self.train_documents is not None and not self.articles:
            return "documents", self.train_documents + self.validation_documents
        plain = isinstance(self.files, LocalFiles) and self.train_documents is None
        if plain and not any(n.endswith((".gz", ".zst", ".parquet")) for n in self.files.names):
            return "bytes", self.files.bytes
        return "bytes", None

    def documents(self) -> Iterator[Document]:
        """Always in the same order. The splits are disjoint."""
        for part in self.parts():
            if isinstance(part, Document):
                yield part
            else:
                yield from part.documents()

    def parts(self) -> Iterator[Document | RowGroup]:
        """The documents, where those of a row group of a table need not be read here."""
        if self.articles:
            return self._articles()
        if self.train_documents is not None:
            pieces = chain.from_iterable(map(self._pieces, self.files.names))
            rule = ByCount(self.train_documents, self.validation_documents)
            return by_count(pieces, rule, self.name)
        if len(self.files.names) == 1 and not has_records(self.files.names[0]):
            return self._parts()
        return self._folder()

    def _pieces(self, name: str) -> Iterator[bytes | RowGroup]:
        file = self.files.path(name)
        if not name.endswith(".parquet"):
            yield from read_records(file, self.text_key) if has_records(name) else read_pieces(file)
            return
        for number, (first, rows, size) in enumerate(row_groups(file, self.text_key)):
            if size > _LARGE:  # it would be too much for one process to hold
                yield from read_row_group(file, number, self.text_key, first)
            else:
                yield RowGroup(
                    file=file, number=number, first_row=first, rows=rows, text_key=self.text_key
                )

    def _folder(self) -> Iterator[Document | RowGroup]:
        """The hash of a text file's name decides on its split, that of the text for a record."""
        records = [name for name in self.files.names if has_records(name)]
        texts = [name for name in self.files.names if not has_records(name)]
        validation = held_out(texts)
        for name in texts:
            split = "validation" if name in validation else "train"
            yield from (Document(split, text) for text in read_pieces(self.files.path(name)))
        first = (read_records(self.files.path(name), self.text_key) for name in records)
        rule = ByText.of(chain.from_iterable(first))
        yield from assigned(chain.from_iterable(map(self._pieces, records)), rule)

    def _parts(self) -> Iterator[Document]:
        """The last part of a single text file is for validation."""
        file = self.files.path(self.files.names[0])
        cut = last_part(file)
        yield from (Document("train", text) for text in read_pieces(file, 0, cut))
        yield from (Document("validation", text) for text in read_pieces(file, cut))

    def _articles(self) -> Iterator[Document]:
        counts = {"train": self.train_documents, "validation": self.validation_documents}
        for split, names in _wikitext_splits(self.files.names, self.name).items():
            articles = read_articles(map(self.files.path, names), self.text_key)
            for text in islice(articles, counts.get(split)):
                yield Document(split, text)


def find_corpus(
    name: str,
    *,
    local: str | None = None,
    subset: str | None = None,
    text_key: str = "text",
    train_documents: int | None = None,
    validation_documents: int | None = None,
) -> Corpus:
    """`name` is that of a corpus, or a path. `local` has the files of a corpus of the hub."""
    counts = {"train_documents": train_documents, "validation_documents": validation_documents}
    for key, count in counts.items():
        if count is not None and count < 1:
            raise ConfigError(f"--{key.replace('_', '-')} is {count}: it must be at least 1")
    on_hub = name == FINEWEB or name in WIKITEXT
    if local is not None and not on_hub:
        raise ConfigError(
            f"--local is for {FINEWEB}, {' and '.join(WIKITEXT)}: name the path alone"
        )
    if subset is not None and (name != FINEWEB or local is not None):
        raise ConfigError(f"--subset is for {FINEWEB} from the hub only")
    if name == FINEWEB:
        counts["train_documents"] = train_documents or _PAPER["train"]
        counts["validation_documents"] = validation_documents or _PAPER["validation"]
        files = _local(local, "--local") if local else fineweb_files(subset or _SUBSET)
    elif name in WIKITEXT:
        files = _wikitext_files(name, local)
    elif name == STDLIB:
        files = _standard_library()
    else:
        files = _local(name)
    if not on_hub and train_documents is not None and validation_documents is None:
        counts["validation_documents"] = max(1, train_documents // HELD_OUT)
    elif not on_hub and validation_documents is not None and train_documents is None:
        raise ConfigError("--validation-documents is given alone: name --train-documents too")
    label = name if on_hub or name == STDLIB else Path(name).resolve().name
    options = {
        "--local": None if local is None else str(Path(local).resolve()),
        "--subset": subset,
        "--text-key": None if text_key == "text" else text_key,
        "--train-documents": train_documents,
        "--validation-documents": validation_documents,
    }
    words = [name if on_hub or name == STDLIB else str(Path(name).resolve())]
    for key, value in options.items():
        words += [] if value is None else [key, str(value)]
    return Corpus(
        name=label,
        files=files,
        text_key=text_key,
        articles=name in WIKITEXT,
        words=tuple(words),
        **counts,
    )


def fineweb_files(subset: str) -> HubFiles:
    """`sample-10BT`, `sample-100BT`, `sample-350BT`, `default` (all), or a crawl: `CC-MAIN-...`."""
    if subset.startswith("sample-"):
        folder = subset.replace("-", "/", 1)
    else:
        folder = "data" if subset == "default" else f"data/{subset}"
    return HubFiles("HuggingFaceFW/fineweb-edu", folder)


def _wikitext_files(name: str, local: str | None) -> LocalFiles | HubFiles:
    if local is None:
        return HubFiles("Salesforce/wikitext", f"{name}-raw-v1")
    root = _existing(local, "--local")
    inside = root / f"{name}-raw-v1"  # as the hub has it
    files = local_files(inside if inside.is_dir() else root, (*KINDS, ".raw", ".tokens"))
    _wikitext_splits(files.names, local)
    return files


def _wikitext_splits(names: tuple[str, ...], source: str) -> dict[str, list[str]]:
    splits: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    for name in names:
        part = _PART.fullmatch(name)
        if part:
            splits["validation" if part[1] == "valid" else part[1]].append(name)
    if not splits["train"] or not splits["validation"]:
        raise ConfigError(
            f"{source} has no files for training and validation: their names must have 'train' "
            "and 'valid' in them, as train.txt, wiki.valid.raw or validation-00000.parquet"
        )
    return {split: found for split, found in splits.items() if found}


def _standard_library() -> LocalFiles:
    root = Path(sysconfig.get_path("stdlib"))
    return LocalFiles(root, tuple(sorted(file.name for file in root.glob("*.py"))))


def _local(path: str, flag: str = "") -> LocalFiles:
    return local_files(_existing(path, flag))


def _existing(path: str, flag: str = "") -> Path:
    if Path(path).exists():
        return Path(path)
    if flag:
        raise ConfigError(f"{flag} {path!r} does not exist: name the folder that has the files")
    names = (STDLIB, FINEWEB, *WIKITEXT)
    near = difflib.get_close_matches(path, names, n=1)
    raise ConfigError(
        f"{path!r} does not exist: did you mean {near[0]!r}?"
        if near
        else f"{path!r} does not exist: name a file, a folder, or one of {', '.join(names)}"
    )
