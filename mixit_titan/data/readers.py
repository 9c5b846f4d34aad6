"""Reads files as texts: .jsonl (also .gz and .zst) and .parquet by records, other files in pieces.

A text is passed on as bytes that were checked to be UTF-8: a process that reads for several others
should do little.

No file is ever held completely in memory: a text file of any size, even one without a newline, is
read in pieces.
"""

import contextlib
import functools
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from mixit_titan.errors import ConfigError
from mixit_titan.reading import regular

RECORDS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
KINDS = (".txt", *RECORDS)
_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
PIECE = 2**18  # bytes; the standard library's largest source is smaller
_LONGEST = 2**30  # bytes of a line of JSON


def has_records(name: str) -> bool:
    """Whether a file consists of records, by its name."""
    return name.endswith(RECORDS)


def reading_order(names: Iterable[str]) -> tuple[str, ...]:
    """The names in the order in which a corpus reads them: texts before records."""
    return tuple(sorted(names, key=lambda name: (has_records(name), name)))


def read_records(file: Path, text_key: str) -> Iterator[bytes]:
    """The texts of the records of a .jsonl or .parquet file."""
    with _readable(file):
        if file.suffix != ".parquet":
            yield from _jsonl(file, text_key)
    if file.suffix == ".parquet":
        for number, (first_row, _, _) in enumerate(row_groups(file, text_key)):
            yield from read_row_group(file, number, text_key, first_row)


def row_groups(file: Path, text_key: str) -> list[tuple[int, int, int]]:
    """For each row group of a .parquet file, its first row, its number of rows and the bytes of its
    texts."""
    with _readable(file):
        table = _open_table(file, text_key)
        groups, first = [], 0
        schema = table.metadata.schema
        paths = [schema.column(place).path.split(".") for place in range(len(schema))]
        columns = [place for place, path in enumerate(paths) if path[0] == text_key]
        for number in range(table.num_row_groups):
            group = table.metadata.row_group(number)
            size = sum(group.column(place).total_uncompressed_size for place in columns)
            groups.append((first, group.num_rows, size))
            first += group.num_rows
        return groups


def read_row_group(file: Path, number: int, text_key: str, first_row: int) -> Iterator[bytes]:
    """The texts of a row group."""
    with _readable(file):
        table, row = _open_table(file, text_key), first_row
        # Few rows at a time and without threads, because other processes have the cores.
        columns = {"columns": [text_key], "row_groups": [number]}
        for batch in table.iter_batches(batch_size=128, use_threads=False, **columns):
            column = batch.column(0)
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            _check_column(column, text_key, file, row)
            for value in column:
                yield value.as_buffer().to_pybytes()
            row += len(column)


@contextlib.contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        raise ConfigError(
            f"{file} cannot be read, it may be damaged or truncated ({error}): download it again"
        ) from None


def _open_table(file: Path, text_key: str) -> pq.ParquetFile:
    stat = file.stat()
    table = _opened_table(file, stat.st_ino, stat.st_size, stat.st_mtime_ns)
    if text_key not in table.schema_arrow.names:
        raise _absent(str(file), text_key, table.schema_arrow.names)
    return table


@functools.lru_cache(maxsize=1)  # the metadata of many row groups are large
def _opened_table(file: Path, *state: int) -> pq.ParquetFile:
    return pq.ParquetFile(file)


def read_pieces(file: Path, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """The text between two bytes of a file, in pieces. A piece ends at an empty line, else at the
    end of a line, else before a space, else between two characters; joined, the pieces are the
    text."""
    with opened(file) as stream:
        stream.seek(start)
        left = (file.stat().st_size if stop is None else stop) - start
        offset, rest = start, b""
        while left or rest:
            block = stream.read(min(PIECE - len(rest), left))
            left = left - len(block) if block else 0
            rest += block
            end = _end_of_piece(rest) if left else len(rest)
            if end:
                _decode(rest[:end], file, offset)
                yield rest[:end]
            offset, rest = offset + end, rest[end:]


@contextlib.contextmanager
def opened(file: Path) -> Iterator[BinaryIO]:
    """Open a text file; raise a ConfigError if that fails, or if reading fails in the block."""
    try:
        with open(file, "rb", opener=regular) as stream:
            yield stream
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None


def _end_of_piece(block: bytes) -> int:
    half = len(block) // 2
    for mark in (b"\n\n", b"\n"):
        found = block.rfind(mark, half)
        if found >= 0:
            return found + len(mark)
    found = block.rfind(b" ", half)
    return found if found > 0 else before_character(block, len(block) - 1) or len(block)


def before_character(block: bytes, place: int) -> int:
    """The last place up to this one at which a UTF-8 character begins."""
    while place > 0 and block[place] & 0xC0 == 0x80:
        place -= 1
    return place


def _decode(text: bytes, file: Path, offset: int) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{file} is not UTF-8 text (byte {offset + error.start:,}): convert it"
        ) from None


def _jsonl(file: Path, text_key: str) -> Iterator[bytes]:
    offset = 0
    with _open_lines(file) as stream:
        for number, line in enumerate(iter(lambda: stream.readline(_LONGEST), b""), 1):
            if len(line) == _LONGEST:
                raise ConfigError(f"{file}, line {number:,} is longer than {_LONGEST:,} bytes")
            text, offset = _decode(line, file, offset), offset + len(line)
            if text.strip():
                where = f"{file}, line {number:,}"
                yield _encode(_field(text, text_key, where), text_key, where)


def _open_lines(file: Path) -> BinaryIO:
    if file.suffix == ".gz":
        return gzip.open(file, "rb")
    if file.suffix == ".zst":
        return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(file)), "zstd"))
    return file.open("rb")


def _field(line: str, text_key: str, where: str) -> Any:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not JSON ({error}): fix or remove the line") from None
    if not isinstance(record, dict):
        raise ConfigError(f"{where} is not a JSON object: expected one that contains the text")
    if text_key not in record:
        raise _absent(where, text_key, list(record))
    return record[text_key]


def _encode(text: Any, text_key: str, where: str) -> bytes:
    if not isinstance(text, str):
        raise _no_text(text, text_key, where)
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"{where}: {text_key!r} contains half of a surrogate pair: fix or remove the record"
        ) from None


def _check_column(column: pa.Array, text_key: str, file: Path, row: int) -> None:
    """Raise unless all values are UTF-8 texts."""
    strings = any(is_text(column.type) for is_text in _TEXT)
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"{file}, rows {row + 1:,} to {row + len(column):,}: not all is UTF-8 text ({error}): "
            "convert it"
        ) from None
    if strings and not column.null_count:
        return
    for number, value in enumerate(column, row + 1):
        if not strings or not value.is_valid:
            raise _no_text(value.as_py(), text_key, f"{file}, row {number:,}")


def _no_text(value: Any, text_key: str, where: str) -> ConfigError:
    return ConfigError(
        f"{where}: {text_key!r} is {value!r:.40}, which is not a text: fix or remove the record"
    )


def _absent(where: str, text_key: str, keys: list[str]) -> ConfigError:
    there = ", ".join(keys) or "none"
    return ConfigError(f"{where} has no key {text_key!r} (it has: {there}): set --text-key")
