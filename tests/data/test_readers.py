import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixit_titan.data import readers
from mixit_titan.data.readers import read_pieces, read_records
from mixit_titan.data.wikitext import articles, read_articles
from mixit_titan.errors import ConfigError
from tests.data.tokens import stories

TEXTS = ["one\ntwo", "", "naïve 数学 🙂", "\u2028 odd \r\n lines \x85"]
LINES = "".join(json.dumps({"n": 1, "text": text}) + "\n" for text in TEXTS).encode()


def write(path: Path) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"n": [1] * len(TEXTS), "text": TEXTS}), path, row_group_size=2)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(LINES))
    elif path.suffix == ".zst":
        path.write_bytes(pa.compress(LINES, codec="zstd", asbytes=True))
    else:
        path.write_bytes(LINES + b"\n")
    return path


@pytest.mark.parametrize(
    "column",
    [
        pa.array(TEXTS, pa.large_string()),
        pa.array(TEXTS, pa.string_view()),
        pa.array(TEXTS).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_any_column_of_texts_is_read(tmp_path: Path, column: pa.Array) -> None:
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    found = [text.decode() for text in read_records(tmp_path / "a.parquet", "text")]
    assert found == TEXTS


NAMES = ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"]


@pytest.mark.parametrize("name", NAMES)
def test_records_give_their_texts(tmp_path: Path, name: str) -> None:
    texts = read_records(write(tmp_path / name), "text")
    assert [text.decode() for text in texts] == TEXTS


@pytest.mark.parametrize("name", NAMES)
def test_an_absent_key_names_those_that_are_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"has no key 'body' \(it has: n, text\)"):
        list(read_records(write(tmp_path / name), "body"))
    with pytest.raises(ConfigError, match="'n' is 1, which is not a text"):
        list(read_records(write(tmp_path / name), "n"))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["a"] * 200 + [None]), "row 201: 'text' is None, which is not a text"),
        (
            pa.array([b"a"] * 200 + [b"\xff"]).view(pa.string()),
            r"rows 129 to 201: not all is UTF-8 text",
        ),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, column: pa.Array, message: str) -> None:
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match=message):
        list(read_records(tmp_path / "a.parquet", "text"))


@pytest.mark.parametrize("name", NAMES[1:])
@pytest.mark.parametrize("damage", ["cut", "garbage"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str, damage: str) -> None:
    file = write(tmp_path / name)
    data = file.read_bytes()
    file.write_bytes(data[:-9] if damage == "cut" else b"garbage" * 9)
    with pytest.raises(ConfigError, match=f"{name} cannot be read, it may be damaged"):
        list(read_records(file, "text"))


@pytest.mark.parametrize(
    ("line", "message"),
    {
        b"{oops\n": "line 2 is not JSON",
        b"[1]\n": "line 2 is not a JSON object",
        b'{"text": null}\n': "line 2: 'text' is None, which is not a text",
        b'{"text": "\\ud800"}\n': "line 2: 'text' contains half of a surrogate pair",
        b'{"text": "\xff"}\n': r"a.jsonl is not UTF-8 text \(byte 24\)",
    }.items(),
)
def test_a_bad_line_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "0"}\n' + line)
    with pytest.raises(ConfigError, match=message):
        list(read_records(tmp_path / "a.jsonl", "text"))


@pytest.mark.parametrize(
    "text",
    {
        "paragraphs": "\n\n".join(stories(30)),
        "lines": "\n".join(story.replace("\n", " ") for story in stories(30)),
        "one line": " ".join(story.replace("\n", " ") for story in stories(30)),
        "no space": "数学🙂ï" * 200,
        "windows": "\r\n".join(stories(30)),
    }.values(),
)
@pytest.mark.parametrize("piece", [16, 61, 256])
def test_joined_pieces_are_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, piece: int
) -> None:
    monkeypatch.setattr(readers, "PIECE", piece)
    file = tmp_path / "a.txt"
    file.write_bytes(text.encode())
    pieces = list(read_pieces(file))
    assert b"".join(pieces).decode() == text
    assert max(map(len, pieces)) <= piece
    assert min(map(len, pieces[:-1])) >= piece // 2 - 3
    assert all(p.decode() for p in pieces)  # no character is cut
    start = len(text[:20].encode())
    rest = read_pieces(file, start, len(text.encode()))
    assert b"".join(rest).decode() == text[20:]


def test_pieces_end_where_a_reader_would_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "PIECE", 12)
    for text, pieces in {
        "abcdef\n\ng\nhijk": ["abcdef\n\n", "g\nhijk"],
        "abcdefg\nhi jkl": ["abcdefg\n", "hi jkl"],
        "abcdefg hijklmn": ["abcdefg", " hijklmn"],
        "abcdefghijklmno": ["abcdefghijk", "lmno"],
    }.items():
        (tmp_path / "a.txt").write_text(text)
        assert [p.decode() for p in read_pieces(tmp_path / "a.txt")] == pieces


def test_invalid_utf8_names_the_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "PIECE", 64)
    for place in (0, 63, 64, 1234, 1999):
        data = bytearray(b"12345678 " * 300)[:2000]
        data[place] = 0xFF
        (tmp_path / "a.txt").write_bytes(data)
        with pytest.raises(ConfigError, match=rf"a.txt is not UTF-8 text \(byte {place:,}\)"):
            list(read_pieces(tmp_path / "a.txt"))


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.parquet"])
@pytest.mark.parametrize("half", [b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\xa0\xbd\xed\xb8\x80"])
def test_broken_surrogates_are_no_text(tmp_path: Path, name: str, half: bytes) -> None:
    """The bytes that UTF-8 would have for them; the last is a pair, as CESU-8 writes it."""
    text, file = b"one " + half + b" two", tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.table({"text": pa.array([text]).view(pa.string())}), file)
    else:
        file.write_bytes(b'{"text": "' + text + b'"}\n')
    with pytest.raises(ConfigError, match=r"not UTF-8 text|not all is UTF-8 text"):
        list(read_pieces(file) if name == "a.txt" else read_records(file, "text"))


def test_a_pair_of_escaped_surrogates_is_its_character(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "\\ud83d\\ude00"}\n')
    assert [text.decode() for text in read_records(tmp_path / "a.jsonl", "text")] == ["😀"]


WIKI = [
    *(" \n", " = First = \n", " \n", " Text with x = y . \n", " = = Part = = \n", " \n"),
    *(" A table : \n", " = Played , W = \n", " Won \n", " \n", " \n"),
    *(" = Second = \n", " \n", " = = = Deep = = = \n", " \n", " The end . \n", " \n"),
]
LINES_OF_WIKI = [line.encode() for line in WIKI]


def test_articles_begin_at_titles() -> None:
    found = [a.decode() for a in articles(LINES_OF_WIKI)]
    assert [a.split("\n")[0 if n else 1] for n, a in enumerate(found)] == [
        " = First = ",
        " = Second = ",
    ]
    assert "".join(found) == "".join(WIKI)


def test_the_hubs_table_gives_the_articles_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "wiki.train.raw").write_text("".join(WIKI))
    rows = [line if line.strip() else "" for line in WIKI]
    half = len(rows) // 2  # within an article
    for n, part in enumerate([rows[:half], rows[half:]]):
        pq.write_table(pa.table({"text": part}), tmp_path / f"train-{n}.parquet")
    tables = [tmp_path / "train-0.parquet", tmp_path / "train-1.parquet"]
    assert list(read_articles(tables, "text")) == list(articles(LINES_OF_WIKI))
    assert list(read_articles([tmp_path / "wiki.train.raw"], "text")) == list(
        articles(LINES_OF_WIKI)
    )
