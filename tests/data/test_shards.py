"""Reading of token shards, against plain lists; and what is refused."""

import base64
import errno
import hashlib
import json
import logging
import os
import pickle
import resource
from pathlib import Path

import numpy as np
import pytest

from mixit_titan.data import shards, verification
from mixit_titan.data.packing import PACKINGS
from mixit_titan.data.prepared import prepared_data
from mixit_titan.data.shards import open_split, read_manifest, write_manifest
from mixit_titan.data.verification import verify
from mixit_titan.errors import ConfigError, RankFailed
from tests.shards import EOS, random_documents, write_shards

DOCUMENTS = random_documents(40, 20)
TOKENS = [token for document in DOCUMENTS for token in (*document, EOS)]
STARTS = [0, *np.cumsum([len(document) + 1 for document in DOCUMENTS]).tolist()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_shards(tmp_path / "data", per_shard=6, train=DOCUMENTS, validation=DOCUMENTS[:9])


def test_as_many_files_stay_open_as_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
        assert shards._files_to_open() == min(hard, shards._MAPPINGS) - shards._OTHER_FILES > 144
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_shards_read_as_one_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setattr(shards, "_files_to_open", lambda: 2)  # fewer than there are
    folder = write_shards(tmp_path, per_shard=6, dtype=dtype, train=DOCUMENTS)
    split = pickle.loads(pickle.dumps(open_split(folder, "train")))  # as for a worker
    assert (split.documents, split.tokens) == (40, len(TOKENS))
    draw = np.random.default_rng(0)
    for start, stop in np.sort(draw.integers(0, len(TOKENS) + 1, (200, 2))).tolist():
        assert split.read(start, stop).tolist() == TOKENS[start:stop]
    order = draw.permutation(40)
    starts, stops = split.bounds(order)
    assert starts.tolist() == [STARTS[i] for i in order]
    assert stops.tolist() == [STARTS[i + 1] for i in order]
    places = np.arange(1, len(TOKENS) + 1)
    expected = [sum(start < place for start in STARTS[:-1]) for place in places]
    assert split.documents_before(places).tolist() == expected


def test_a_manifest_reads_as_it_was_written(folder: Path) -> None:
    manifest = read_manifest(folder)
    write_manifest(folder, manifest)
    assert read_manifest(folder) == manifest
    assert manifest.splits["train"].documents == 40 and manifest.tokenizer.eos_id == EOS


def rewrite(path: Path, content: bytes) -> None:
    """At another time, however coarse the file system's clock is."""
    before = path.stat().st_mtime_ns
    path.write_bytes(content)
    os.utime(path, ns=(before + 10**9, before + 10**9))


def with_checksum(table: dict, path: Path, dtype: str, values: dict[int, int]) -> None:
    """Change numbers of a file, and its checksum in the manifest."""
    numbers = np.fromfile(path, dtype)
    for place, value in values.items():
        numbers[place] = value
    rewrite(path, numbers.tobytes())
    (shard,) = (s for s in table["splits"]["train"]["shards"] if s["name"] == path.stem)
    shard["sha256"][path.suffix[1:]] = hashlib.sha256(numbers.tobytes()).hexdigest()


def damage(folder: Path, how: str) -> None:
    tokens, ends = folder / "train-00002.tokens", folder / "train-00002.ends"
    if how == "cut":
        tokens.write_bytes(tokens.read_bytes()[:-2])
    elif how == "changed":
        content = bytearray(ends.read_bytes())
        content[0] ^= 1
        rewrite(ends, bytes(content))
    elif how == "missing":
        tokens.unlink()
    elif how == "no manifest":
        (folder / "manifest.json").unlink()
    else:
        table = json.loads((folder / "manifest.json").read_text())
        {
            "format": lambda: table.update(format=2),
            "no splits": lambda: table.pop("splits"),
            "text": lambda: table["tokenizer"].update(eos_id="256"),
            "sum": lambda: table["splits"]["train"].update(tokens=1),
            "path": lambda: table["splits"]["train"]["shards"][0].update(name="../x"),
            "tokenizer": lambda: table["tokenizer"].update(fingerprint="0", name="other"),
            "twice": lambda: table["splits"]["validation"].update(table["splits"]["train"]),
            "large eos": lambda: table["tokenizer"].update(eos_id=257),
            "large id": lambda: with_checksum(table, tokens, "<u2", {0: 257}),
            "no end": lambda: with_checksum(table, tokens, "<u2", {-1: 3}),
            "order": lambda: with_checksum(table, ends, "<u8", {0: 10**6}),
            "empty document": lambda: with_checksum(table, ends, "<u8", {0: 0}),
            "too far": lambda: with_checksum(table, ends, "<u8", {-1: 10**6}),
            "pipe": lambda: (ends.unlink(), os.mkfifo(ends)),
        }[how]()
        (folder / "manifest.json").write_text(json.dumps(table))


@pytest.mark.parametrize(
    ("how", "message"),
    {
        "cut": r"train-00002.tokens has \d+ bytes, but its manifest says \d+: delete the",
        "changed": r"train-00002.ends is damaged, its checksum is not the one in the manifest",
        "missing": r"train-00002.tokens is missing \(No such file",
        "no manifest": r"has no manifest.json, so its token shards are not complete: run mixit",
        "format": r"manifest.json has format 2, and this version reads 1",
        "no splits": r"manifest.json cannot be used \(there is no splits\): delete the folder and",
        "text": r"tokenizer.eos_id is '256', and not a non-negative integer",
        "sum": r"tokens of 'train' is not the sum over its shards",
        "path": r"a shard is called '../x'",
        "twice": r"it names a shard twice",
        "large eos": r"its end-of-text id is not in its vocabulary",
        "large id": r"train-00002.tokens .*an id that is not among the 257 of its tokenizer",
        "no end": r"train-00002.tokens .*a document does not end in its end-of-text id",
        "order": r"train-00002.ends .*its documents are not one after another",
        "empty document": r"train-00002.ends .*its documents are not one after another",
        "too far": r"train-00002.ends .*its documents are not one after another",
        "pipe": r"train-00002.ends has 0 bytes, but its manifest says \d+",
        "tokenizer": r"data/tokenizer does not contain 'other', the tokenizer of its tokens",
    }.items(),
)
def test_a_damaged_folder_is_refused_in_one_sentence(folder: Path, how: str, message: str) -> None:
    prepared_data(str(folder), None, vocab=512)  # complete, and remembered as such
    damage(folder, how)
    with pytest.raises(ConfigError, match=message) as error:
        prepared_data(str(folder), None, vocab=512)
    assert "\n" not in str(error.value)


def test_checksums_are_computed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    checksum = verification._checksum
    monkeypatch.setattr(verification, "_checksum", lambda path: read.append(path) or checksum(path))
    for _ in range(3):
        verify(folder)
    assert len(read) == len(set(read)) == 2 * (7 + 2)  # two files a shard
    path = folder / "train-00001.tokens"
    rewrite(path, path.read_bytes())  # the same content, but who knows
    verify(folder)
    assert read[-1] == path and len(read) == 2 * 9 + 1


def test_a_file_whose_time_was_put_back_is_read_again(folder: Path) -> None:
    verify(folder)
    path = folder / "train-00001.tokens"
    before, content = path.stat(), bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    with pytest.raises(ConfigError, match=r"train-00001.tokens is damaged, its checksum"):
        verify(folder)


@pytest.mark.parametrize("packing", ["documents", "stream"])
def test_a_shard_that_changes_in_the_midst_of_a_run_is_named(folder: Path, packing: str) -> None:
    rows = PACKINGS[packing](open_split(folder, "train"), 8)
    every = np.arange(rows.rows)
    rows.read(every)
    with (folder / "train-00001.tokens").open("r+b") as file:
        file.write(b"\xff\xff")
    with pytest.raises(RankFailed, match=r"an id that is not among the 257 .*prepare it again"):
        rows.read(every)
    with (folder / "train-00001.ends").open("r+b") as file:
        file.write(b"\xff" * 8)
    with pytest.raises(RankFailed, match=r"not one after another.*prepare it again"):
        rows.split.bounds(np.arange(rows.split.documents))


def test_a_pipe_in_place_of_a_lock_or_a_memory_is_not_waited_for(folder: Path) -> None:
    for name in (".verified.lock", ".verified.json"):
        os.mkfifo(folder / name)
    assert verify(folder) == read_manifest(folder)


def failing(*_: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_file_that_cannot_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification.hashlib, "file_digest", failing)
    with pytest.raises(ConfigError, match=r"train-00000.tokens cannot be read: Input/output error"):
        verify(folder)


def test_a_full_disk_does_not_keep_a_whole_folder_from_use(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(verification, "write_text", failing)
    with caplog.at_level(logging.WARNING):
        assert verify(folder) == read_manifest(folder)
    assert "checksums are computed at every start" in caplog.text


def test_another_tokenizer_is_refused(folder: Path, tmp_path: Path) -> None:
    ranks = tmp_path / "x.tiktoken"
    ranks.write_bytes(b"".join(base64.b64encode(bytes([i])) + b" %d\n" % i for i in range(256)))
    with pytest.raises(ConfigError, match=r"x.tiktoken' is not the one that .* 'bytes'"):
        prepared_data(str(folder), str(ranks), vocab=512)
    assert prepared_data(str(folder), None, vocab=512) == (str(folder), "bytes")
