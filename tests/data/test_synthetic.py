"""Synthetic data: shards like any other, and a run that learns from them."""

import errno
import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pytest

from mixit_titan.data import synthetic
from mixit_titan.data.prepared import prepared_data
from mixit_titan.data.shards import open_split
from mixit_titan.data.synthetic import MEDIAN, TOKENS, synthetic_folder
from mixit_titan.errors import ConfigError


@pytest.fixture(scope="module")
def folder() -> Path:
    return synthetic_folder(128256)


@pytest.mark.parametrize("split", TOKENS)
def test_documents_are_as_long_as_those_of_the_web(folder: Path, split: str) -> None:
    found = open_split(folder, split)
    starts, stops = found.bounds(np.arange(found.documents))
    assert stops[-1] == found.tokens >= TOKENS[split]
    assert abs(np.median(stops - starts) / MEDIAN - 1) < 0.1
    ids = found.read(0, found.tokens)
    assert ids.max() == 128255 and np.array_equal(np.flatnonzero(ids == 128255), stops - 1)


def test_frequent_tokens_leave_something_to_learn(folder: Path) -> None:
    found = open_split(folder, "train")
    share = np.bincount(found.read(0, found.tokens), minlength=128256) / found.tokens
    entropy = -sum(p * math.log(p) for p in share if p)
    assert math.log(128256) - 4 < entropy < math.log(128256) - 1


def test_the_folder_is_complete_and_always_the_same(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, tokenizer = prepared_data("synthetic", None, vocab=128256)
    assert (name, tokenizer) == (str(folder), "numbers:128256")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    again = synthetic_folder(128256)
    assert again != folder
    shards = json.loads((again / "manifest.json").read_text())["splits"]["train"]["shards"]
    for ending, checksum in shards[0]["sha256"].items():
        content = (folder / f"train-00000.{ending}").read_bytes()
        assert hashlib.sha256(content).hexdigest() == checksum


def test_a_tokenizer_is_refused() -> None:
    with pytest.raises(ConfigError, match="no text to tokenize"):
        prepared_data("synthetic", "bytes", vocab=512)


def test_it_is_made_where_the_file_system_has_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", flock)
    monkeypatch.setattr(synthetic, "TOKENS", {"train": 2**12, "validation": 2**10})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert open_split(synthetic_folder(50), "train").documents > 0
