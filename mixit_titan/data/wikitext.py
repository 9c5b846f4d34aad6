"""Turns WikiText's lines into articles."""

import io
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from mixit_titan.data.readers import PIECE, has_records, read_pieces, read_records

_TITLE = re.compile(rb" = (?!= ).*(?<! =) = \n")


def read_articles(files: Iterable[Path], text_key: str) -> Iterator[bytes]:
    """The articles of one split, from text files, or from the hub's tables with one line per
    row."""
    return articles(chain.from_iterable(_lines(file, text_key) for file in files))


def articles(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The articles; joined, they are the lines. An article begins at a title, ` = Title = `,
    between two empty lines, because lines in tables have that form, too."""
    article, size = [], 0
    line, following = b"", iter(lines)
    for after in chain(following, [b""]):
        title = _TITLE.fullmatch(line) and not after.strip()
        if (title and article and _blank(article[-1]) and not all(map(_blank, article))) or (
            size > 4 * PIECE  # no article is that long
        ):
            yield b"".join(article)
            article, size = [], 0
        article.append(line)
        size += len(line)
        line = after
    if size:
        yield b"".join(article)


def _blank(line: bytes) -> bool:
    return not line.strip()


def _lines(file: Path, text_key: str) -> Iterator[bytes]:
    if not has_records(file.name):
        for piece in read_pieces(file):
            yield from io.BytesIO(piece)
        return
    for row in read_records(file, text_key):
        # The hub's tables have "" where the text has an empty line.
        yield row if row.endswith(b"\n") else (row or b" ") + b"\n"
