"""Labeled reviews, from a CSV file or from the Yelp polarity set on the hub."""

import csv
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import TextIO

from mixit_titan.errors import ConfigError, unknown
from mixit_titan.hashing import text_hash
from mixit_titan.reading import regular
from mixit_titan.tasks.examples import TEST_ONE_IN

HUB_SET = "fancyzhx/yelp_polarity"
_LONGEST = 2**24  # characters in a line
_PATIENCE = 5.0  # seconds

Reviews = list[tuple[str, str]]
"""Pairs of label and text."""


def read_csv(path: str, label_column: str, text_column: str) -> Reviews:
    """Read the rows of a CSV file with a header."""
    try:
        with open(path, newline="", encoding="utf-8-sig", opener=regular) as file:
            rows = csv.DictReader(_lines(file))
            columns = rows.fieldnames or []
            for flag, column in (("--label-column", label_column), ("--text-column", text_column)):
                if column not in columns:
                    raise unknown(f"column of {flag}", column, columns, where=path)
            found = [(row[label_column], row[text_column]) for row in rows]
    except OSError as error:
        raise ConfigError(f"--csv {path!r} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"--csv {path!r} is not a CSV file in UTF-8: {error}") from None
    for number, (label, text) in enumerate(found, 1):
        if not label or text is None:
            raise ConfigError(f"row {number} of {path} has no label or no text: fix or remove it")
    if len({label for label, _ in found}) < 2:
        raise ConfigError(f"{path} needs reviews of two labels at least in {label_column!r}")
    return found


def _lines(file: TextIO) -> Iterator[str]:
    while line := file.readline(_LONGEST):
        if len(line) == _LONGEST:
            raise csv.Error(f"a line is longer than {_LONGEST:,} characters")
        yield line


def split_by_text(reviews: Reviews) -> tuple[Reviews, Reviews]:
    """Split reviews by a hash of their text, one in eight for testing, so that no text is on both
    sides."""
    sides: tuple[Reviews, Reviews] = ([], [])
    for label, text in reviews:
        first_byte = text_hash(text.encode()) >> 56
        sides[first_byte % TEST_ONE_IN == 0].append((label, text))
    return sides


def load_hub() -> tuple[Reviews, Reviews]:
    """Load the data set's own split, without the training reviews whose text is also in the test
    set."""
    if not _hub_answers():  # otherwise its client retries for most of a minute
        os.environ["HF_HUB_OFFLINE"] = "1"
    import datasets

    try:
        loaded = datasets.load_dataset(HUB_SET)
    except Exception as error:  # a proxy, a moved data set: the client raises many kinds
        raise ConfigError(
            f"{HUB_SET} cannot be loaded from the hub ({type(error).__name__}): check the network, "
            "or give a file with --csv"
        ) from error
    train, test = (
        [(str(row["label"]), row["text"]) for row in loaded[name]] for name in ("train", "test")
    )
    tested = {text for _, text in test}
    return [review for review in train if review[1] not in tested], test


def _hub_answers() -> bool:
    """Return whether the hub, or the proxy in front of it, answers at all."""
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        urllib.request.urlopen(f"{endpoint}/api/datasets/{HUB_SET}", timeout=_PATIENCE).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True


def words_of(text: str) -> list[str]:
    """Return the lower-case words and single punctuation marks of a text."""
    spaced = "".join(c if c.isalnum() or c == "'" else f" {c} " for c in text.lower())
    return spaced.split()


def frequent_words(reviews: Reviews, count: int) -> list[str]:
    """Return the most frequent words of some reviews, ties in alphabetical order."""
    counts: dict[str, int] = {}
    for _, text in reviews:
        for word in words_of(text):
            counts[word] = counts.get(word, 0) + 1
    return sorted(counts, key=lambda word: (-counts[word], word))[:count]
