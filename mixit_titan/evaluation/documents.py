"""The documents of a text, tokenized with the run's own tokenizer."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from mixit_titan.data.encoding import Encoder
from mixit_titan.data.files import local_files
from mixit_titan.data.readers import has_records, read_pieces, read_records
from mixit_titan.data.shards import TokenSplit, is_prepared, open_split, read_manifest
from mixit_titan.data.token_bytes import TextCounts, token_bytes
from mixit_titan.data.tokenizers import NumberTokenizer, fingerprint
from mixit_titan.data.verification import verify
from mixit_titan.errors import ConfigError, unknown
from mixit_titan.runtime.trained import Trained

_SPLIT = "validation"


@dataclass(frozen=True, kw_only=True)
class Documents:
    """Tokenized documents, with what bits per byte need to know."""

    name: str
    """`the validation split of data/fineweb-edu`"""
    tokens: list[np.ndarray]
    """The tokens of each document, with its end-of-text token."""
    token_bytes: np.ndarray
    """The number of bytes of each token id."""


def read_documents(
    text: Path, trained: Trained, *, split: str | None, limit: int | None
) -> Documents:
    """Read at most `limit` documents. A file is one document, except that each record of a .jsonl
    or .parquet file is one, in its `text`; a prepared folder has the documents of one split."""
    if is_prepared(text):
        return _prepared(text, trained, split=split or _SPLIT, limit=limit)
    if split is not None:
        raise ConfigError(f"--split is for prepared folders, which {text} is not: leave it out")
    if not text.exists():
        raise ConfigError(
            f"--text {str(text)!r} does not exist: name a file, a folder of files, or one that "
            "mixit-titan prepare wrote"
        )
    if isinstance(trained.tokenizer, NumberTokenizer):
        raise ConfigError(
            "the run was trained on numbers, not on text: give a prepared folder as --text"
        )
    encoder, found, size = Encoder(trained.tokenizer, np.dtype(np.int64)), [], 0
    for document in islice(_texts(text), limit):
        found.append(encoder.encode([document])[0])
        size += len(document)
    counts = TextCounts(
        name=str(text),
        documents=len(found),
        tokens=sum(map(len, found)),
        bytes=size,
        eos_id=trained.tokenizer.eos_id,
    )
    return _documents(str(text), found, counts, trained)


def _texts(path: Path) -> Iterator[bytes]:
    files = local_files(path)
    for name in files.names:
        if has_records(name):
            yield from read_records(files.path(name), "text")
        else:
            yield b"".join(read_pieces(files.path(name)))


def _prepared(folder: Path, trained: Trained, *, split: str, limit: int | None) -> Documents:
    manifest = read_manifest(folder)
    if split not in manifest.splits:
        raise unknown("--split", split, manifest.splits, where=str(folder))
    if manifest.tokenizer.fingerprint != fingerprint(trained.tokenizer):
        raise ConfigError(
            f"{folder} was prepared with another tokenizer ({manifest.tokenizer.name}) than the "
            f"run's ({trained.tokenizer_name}): name the original text instead"
        )
    verify(folder)
    opened = open_split(folder, split)
    count = min(opened.documents, limit or opened.documents)
    starts, stops = opened.bounds(np.arange(count))
    found = [opened.read(a, b) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    return _documents(f"the {split} split of {folder}", found, opened, trained)


def _documents(
    name: str, found: list[np.ndarray], counts: TokenSplit | TextCounts, trained: Trained
) -> Documents:
    found = [tokens for tokens in found if len(tokens) > 1]
    if not found:
        raise ConfigError(f"{name} has no text: name a text with at least one character")
    return Documents(name=name, tokens=found, token_bytes=token_bytes(trained.tokenizer, counts))
