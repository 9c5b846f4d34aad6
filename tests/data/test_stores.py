"""Corpora of object stores, by a store in memory that fsspec takes for S3."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem
from fsspec.registry import _registry

from mixit_titan.data import fetching, stores
from mixit_titan.data.fetching import FetchedFiles
from mixit_titan.data.mending import mend
from mixit_titan.data.prepare import prepare
from mixit_titan.data.sources import find_corpus
from mixit_titan.data.stores import StoreFiles
from mixit_titan.errors import ConfigError
from tests.data.test_fetching import ARGUMENTS, tokens
from tests.data.tokens import stories, write_jsonl

MADE = stories(200)
COUNTS = {"train_documents": 120, "validation_documents": 20}


class Store(MemoryFileSystem):
    """A store whose reads break off."""

    protocol = "s3"
    store: dict = {}  # noqa: RUF012
    pseudo_dirs: list = [""]  # noqa: RUF012
    cachable = False
    reads: list[tuple[str, int]] = []  # noqa: RUF012
    """Path, and from which byte on."""
    errors: list[Exception | int] = []  # noqa: RUF012
    """How the next reads end: in an error, or with this many bytes missing."""
    meanwhile: dict[str, bytes] = {}  # noqa: RUF012
    """What is written to a file when its first bytes were read."""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.removeprefix("s3:/"))

    def open(self, path: str, mode: str = "rb", **options: object) -> "Breaking | MemoryFile":
        if mode != "rb":
            return super().open(path, mode, **options)
        assert options == {"cache_type": "none"}
        return Breaking(path, super().open(path, mode).getvalue())


class Breaking:
    def __init__(self, path: str, content: bytes) -> None:
        self.path, self.content, self.place = path, content, 0

    def __enter__(self) -> "Breaking":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def seek(self, place: int) -> None:
        Store.reads.append((self.path, place))
        self.place = place

    def read(self, size: int) -> bytes:
        if self.path in Store.meanwhile:
            Store().pipe_file(self.path, Store.meanwhile.pop(self.path))
        start = self.place
        self.place = min(start + size, len(self.content))
        if self.place == len(self.content) and start < self.place and Store.errors:
            error = Store.errors.pop(0)
            if isinstance(error, Exception):
                raise error
            self.place -= error
            found, self.content = self.content[start : self.place], self.content[: self.place]
            return found
        return self.content[start : self.place]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    fsspec.register_implementation("s3", Store, clobber=True)
    monkeypatch.setattr(fetching, "_WAIT", 0.0)
    monkeypatch.setattr(stores, "_BLOCK", 1000)
    Store.store.clear()
    Store.reads.clear()
    Store.errors.clear()
    found = Store()
    for n in range(4):
        file = write_jsonl(tmp_path / "lines", MADE[50 * n :][:50])
        found.pipe_file(f"/bucket/texts/{n}.jsonl", file.read_bytes())
    found.pipe_file("/bucket/texts/notes.csv", b"not read")
    yield found
    _registry.pop("s3")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("counts", [{}, COUNTS])
def test_a_store_gives_the_shards_of_its_files(
    store: Store, tmp_path: Path, counts: dict[str, int], workers: int
) -> None:
    (tmp_path / "texts").mkdir()
    for n in range(4):
        (tmp_path / "texts" / f"{n}.jsonl").write_bytes(store.cat_file(f"/bucket/texts/{n}.jsonl"))
    arguments = {"tokenizer": "bytes", **ARGUMENTS, "workers": workers}
    prepare(find_corpus(str(tmp_path / "texts"), **counts), folder=tmp_path / "a", **arguments)
    Store.errors += [OSError("reset by peer"), 37, TimeoutError()]
    prepare(find_corpus("s3://bucket/texts", **counts), folder=tmp_path / "b", **arguments)
    assert tokens(tmp_path / "a") == tokens(tmp_path / "b")
    assert not (tmp_path / "b/fetched").exists()


def test_a_broken_transfer_is_resumed(store: Store, tmp_path: Path) -> None:
    files = FetchedFiles(StoreFiles("s3://bucket/texts/1.jsonl"), tmp_path / "fetched", keep=False)
    whole = store.cat_file("/bucket/texts/1.jsonl")
    Store.errors += [OSError("reset by peer"), 37]
    assert files.names == ("1.jsonl",)
    assert files.path("1.jsonl").read_bytes() == whole
    starts = [start for _, start in Store.reads]
    assert starts == [0, len(whole) // 1000 * 1000, len(whole) - 37]


@pytest.mark.parametrize(
    ("error", "tries", "message"),
    [
        (FileNotFoundError("no such key"), 1, r"s3://bucket/texts cannot be read \(no such key\)"),
        (PermissionError("denied"), 1, r"cannot be read \(denied\): check its name and your"),
        (OSError("reset by peer"), 7, r"cannot be read \(reset by peer\)"),
    ],
)
def test_a_store_that_does_not_answer_is_one_sentence(
    store: Store, tmp_path: Path, error: Exception, tries: int, message: str
) -> None:
    Store.errors += [error] * 100
    files = FetchedFiles(StoreFiles("s3://bucket/texts"), tmp_path, keep=False)
    with pytest.raises(ConfigError, match=message):
        files.path("0.jsonl")
    assert len(Store.reads) == tries  # the first bytes came, so the first try does not count


def test_what_is_written_to_meanwhile_is_refused(store: Store, tmp_path: Path) -> None:
    arguments = {"tokenizer": "bytes", "folder": tmp_path / "out", **ARGUMENTS, "shard_tokens": 300}
    same = store.cat_file("/bucket/texts/2.jsonl").replace(b"Story", b"Stony")
    Store.meanwhile["/bucket/texts/2.jsonl"] = same
    with pytest.raises(ConfigError, match=r"changed while it was read \(2\.jsonl\): start again"):
        prepare(find_corpus("s3://bucket/texts", **COUNTS), **arguments)
    assert list((tmp_path / "out").glob("*.tokens"))
    with pytest.raises(ConfigError, match="the files of texts have changed since"):
        prepare(find_corpus("s3://bucket/texts", **COUNTS), **arguments)


def test_a_shard_is_mended_from_a_store_or_refused(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = {"tokenizer": "bytes", "folder": out, **ARGUMENTS}
    manifest = prepare(find_corpus("s3://bucket/texts", **COUNTS), **arguments)
    assert manifest.source["command"][:3] == ["mixit-titan", "prepare", "s3://bucket/texts"]
    before = tokens(out)
    (out / "train-00000.tokens").unlink()
    Store.reads.clear()
    mend(find_corpus("s3://bucket/texts", **COUNTS), **arguments)
    assert tokens(out) == before
    assert [path for path, _ in Store.reads] == ["/bucket/texts/0.jsonl"]
    (out / "train-00000.tokens").unlink()
    same = store.cat_file("/bucket/texts/0.jsonl").replace(b"Story", b"Stony")
    store.pipe_file("/bucket/texts/0.jsonl", same)
    with pytest.raises(ConfigError, match=r"texts has changed since .* no longer gives"):
        mend(find_corpus("s3://bucket/texts", **COUNTS), **arguments)
    store.pipe_file("/bucket/texts/0.jsonl", same[:-2])
    with pytest.raises(ConfigError, match="the files of texts have changed since"):
        mend(find_corpus("s3://bucket/texts", **COUNTS), **arguments)


@pytest.mark.skipif(importlib.util.find_spec("gcsfs") is not None, reason="gcsfs is installed")
def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    said = "gs://bucket/x is read with gcsfs, which is not installed: pip install gcsfs==20"
    with pytest.raises(ConfigError, match=said):
        prepare(find_corpus("gs://bucket/x"), "bytes", tmp_path / "out", **ARGUMENTS)


def test_other_places_are_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"kind of store 's4' in s4://x \(allowed: s3, gs, hf\)"):
        prepare(find_corpus("s4://x"), "bytes", tmp_path / "out", **ARGUMENTS)
    with pytest.raises(ConfigError, match=r"s3://bucket/none has no files that end in \.txt"):
        prepare(find_corpus("s3://bucket/none"), "bytes", tmp_path / "out", **ARGUMENTS)
    assert not (tmp_path / "out").exists()
