"""When `mixit-titan prepare` fails, it says so in one sentence, and nothing counts as complete."""

import errno
import json
import os
import resource
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mixit_titan.data import encoding, journal, writer
from mixit_titan.data.prepare import prepare
from mixit_titan.data.sources import find_corpus
from mixit_titan.errors import ConfigError
from tests.data.tokens import content, stories, write_jsonl

MADE = stories(300)


@pytest.mark.parametrize("change", ["limit", "first sync", "second sync"])
def test_a_full_disk_is_one_sentence_and_nothing_counts_as_whole(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    out = tmp_path / "out"
    arguments = {"workers": 1, "shard_tokens": 20_000}

    synced: list[int] = []

    def no_space(descriptor: int) -> None:
        synced.append(descriptor)
        if change == "first sync" or len(synced) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with monkeypatch.context() as patch:
            if change == "limit":  # of the bytes of a file: a real failure in the midst of a write
                patch.setattr(writer, "_BUFFER", 512)
                resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
            else:
                patch.setattr(writer, "os", SimpleNamespace(fsync=no_space))
            reason = "File too large" if change == "limit" else "No space left"
            with pytest.raises(ConfigError, match=rf"cannot write to .*out \({reason}.*Make room"):
                prepare(find_corpus(corpus), "bytes", out, **arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (out / "manifest.json").exists()
    assert not json.loads((out / ".prepare.json").read_text())["shards"]
    prepare(find_corpus(corpus), "bytes", out, **arguments)
    prepare(find_corpus(corpus), "bytes", tmp_path / "unbroken", **arguments)
    assert content(out) == content(tmp_path / "unbroken")


def test_a_worker_that_dies_is_one_sentence(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, encode = os.getpid(), encoding.Encoder.encode

    def dying(self: encoding.Encoder, texts: Iterable) -> tuple[np.ndarray, np.ndarray]:
        texts = list(texts)
        if os.getpid() != parent and MADE[150].encode() in texts:
            os._exit(9)
        return encode(self, texts)

    monkeypatch.setattr(encoding.Encoder, "encode", dying)
    with pytest.raises(ConfigError, match=r"a worker process died.*run the same command again"):
        prepare(find_corpus(corpus), "bytes", tmp_path / "out", workers=2, shard_tokens=1000)


def test_what_cannot_be_prepared(tmp_path: Path) -> None:
    out = tmp_path / "out"
    cases = {
        "empty.jsonl": ("", "empty.jsonl is empty: it contains no text"),
        "empty.txt": ("", "empty.txt is empty: it contains no text"),
        "one.jsonl": ('{"text": "x"}\n' * 3, "one.jsonl has too few documents: there is none for"),
    }
    for name, (text, message) in cases.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match=message):
            prepare(find_corpus(str(tmp_path / name)), "bytes", out, workers=1)
    # What came to nothing does not block the folder.
    prepare(find_corpus(str(write_jsonl(tmp_path / "a.jsonl", MADE))), "bytes", out, workers=1)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ConfigError, match="contains other files: name a new folder"):
        prepare(find_corpus(str(tmp_path / "a.jsonl")), "bytes", tmp_path, workers=1)
    assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(ConfigError, match=r"a\.jsonl/x \(Not a directory\): name another folder"):
        prepare(find_corpus(str(tmp_path / "a.jsonl")), "bytes", tmp_path / "a.jsonl/x", workers=1)
    with pytest.raises(ConfigError, match=r"a\.jsonl is a file: name a folder"):
        prepare(find_corpus(str(tmp_path / "a.jsonl")), "bytes", tmp_path / "a.jsonl", workers=1)


def test_a_corpus_that_changed_since_is_refused(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(batch: encoding.EncodedBatch) -> None:
        if list((tmp_path / "out").glob("*.tokens")):
            raise KeyboardInterrupt

    arguments = {"workers": 1, "shard_tokens": 1000}
    with pytest.raises(KeyboardInterrupt):
        prepare(find_corpus(corpus), "bytes", tmp_path / "out", on_batch=stop, **arguments)
    os.utime(corpus, ns=(0, 0))
    with pytest.raises(
        ConfigError, match=r"have changed since .*out was started: delete the folder"
    ):
        prepare(find_corpus(corpus), "bytes", tmp_path / "out", **arguments)


def test_a_folder_that_cannot_be_locked_is_one_sentence(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(journal.fcntl, "lockf", no_locks)
    with pytest.raises(ConfigError, match=r"out cannot be locked \(Function not implemented\)"):
        prepare(find_corpus(corpus), "bytes", tmp_path / "out", workers=1)
