"""Corpora of the hub, by a server on this machine that answers as the hub does, or worse."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub.constants as constants
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import file_download, hf_hub_download
from huggingface_hub.utils import _http

from mixit_titan.data import fetching
from mixit_titan.data.encoding import EncodedBatch
from mixit_titan.data.fetching import FetchedFiles
from mixit_titan.data.hub import HubFiles
from mixit_titan.data.mending import mend
from mixit_titan.data.prepare import prepare
from mixit_titan.data.sources import find_corpus
from mixit_titan.data.tokenizers import ByteTokenizer
from mixit_titan.errors import ConfigError
from tests.data.hub_server import REVISION, Hub
from tests.data.test_prepare import call
from tests.data.tokens import stories, texts

MADE = stories(240)
COUNTS = {"train_documents": 180, "validation_documents": 40}
NAMES = [f"sample/10BT/00{n}_00000.parquet" for n in range(6)]
ARGUMENTS = {"workers": 1, "shard_tokens": 1000}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """FineWeb-edu: 240 texts in 6 files of 2 row groups."""
    found = Hub(tmp_path / "hub")
    for number, name in enumerate(NAMES):
        write_table(found, "HuggingFaceFW/fineweb-edu/" + name, MADE[40 * number :][:40])
    write_table(found, "HuggingFaceFW/fineweb-edu/sample/100BT/000.parquet", ["another subset"])
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 30)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 256)  # what comes of less is lost
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    at_once = SimpleNamespace(sleep=lambda seconds: None, time=time.time)
    for module in (file_download, _http):
        monkeypatch.setattr(module, "time", at_once)
    monkeypatch.setattr(fetching, "_WAIT", 0.0)
    with found.serving():
        resolve = found.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", found.address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", resolve)
        yield found


def write_table(hub: Hub, name: str, rows: list[str]) -> None:
    path = hub.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": rows, "url": rows}), path, row_group_size=20)


def fineweb(**options: object) -> dict:
    return {"corpus": find_corpus("fineweb-edu", **COUNTS | options), "tokenizer": "bytes"}


def tokens(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix in TOKENS}


TOKENS = (".tokens", ".ends")


@pytest.fixture
def expected(hub: Hub, tmp_path: Path) -> dict[str, bytes]:
    """The shards from the same files on this machine."""
    local = str(hub.root / "HuggingFaceFW/fineweb-edu/sample/10BT")
    prepare(**fineweb(local=local), folder=tmp_path / "local", **ARGUMENTS)
    found = {s: texts(tmp_path / "local", s, ByteTokenizer()) for s in ("train", "validation")}
    assert found == {"train": MADE[:180], "validation": MADE[180:220]}
    return tokens(tmp_path / "local")


@pytest.mark.parametrize("workers", [1, 2])
def test_files_are_read_as_they_arrive_and_deleted(
    hub: Hub, expected: dict[str, bytes], tmp_path: Path, workers: int
) -> None:
    """The server answers when as many files are asked for as are fetched at once."""
    hub.gate = threading.Barrier(fetching.AT_ONCE)
    there: list[int] = []

    def look(batch: EncodedBatch) -> None:
        there.append(len(list((tmp_path / "out/fetched").rglob("*.parquet"))))

    manifest = prepare(
        **fineweb(), folder=tmp_path / "out", on_batch=look, **ARGUMENTS | {"workers": workers}
    )
    assert tokens(tmp_path / "out") == expected
    assert sorted({*hub.paths()}) == NAMES == sorted(hub.paths())  # each once
    assert not (tmp_path / "out/fetched").exists() and there[-1] < len(NAMES)
    assert manifest.source["revision"] == REVISION
    assert manifest.source["files"][NAMES[4]] == {"train": 20, "validation": 20}


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize(
    "trouble", ["500", "503", "429", "closed", "stalled", "slow", "short", "long", "wrong"]
)
def test_a_bad_answer_is_asked_for_again(
    hub: Hub,
    expected: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trouble: str,
    ranges: bool,
) -> None:
    hub.ranges = ranges
    if trouble == "stalled":
        monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.7)
    hub.troubles = {NAMES[0]: [trouble], NAMES[2]: [trouble, "closed", trouble]}
    prepare(**fineweb(), folder=tmp_path / "out", **ARGUMENTS)
    assert tokens(tmp_path / "out") == expected
    size = (hub.root / "HuggingFaceFW/fineweb-edu" / NAMES[0]).stat().st_size
    starts = [start for name, start in hub.asked if name == NAMES[0]]
    half = size // 2 - size // 2 % 256
    after = {"closed": [half], "slow": [], "short": [size - 100]}
    if trouble == "stalled":  # a busy machine may take as long for a right answer
        assert starts[0] == 0 and half in starts
    else:
        assert starts == [0, *after.get(trouble, [0])]


def test_without_checksums_a_damaged_table_is_one_sentence(hub: Hub, tmp_path: Path) -> None:
    hub.checksums = False
    hub.troubles = {NAMES[0]: ["wrong"]}
    with pytest.raises(ConfigError, match=r"000_00000\.parquet cannot be read, it may be damaged"):
        prepare(**fineweb(), folder=tmp_path / "out", **ARGUMENTS)


@pytest.mark.parametrize(("trouble", "tries"), [("500", 6), ("403", 1), ("404", 1), ("wrong", 6)])
def test_what_stays_bad_is_one_sentence_and_is_resumed(
    hub: Hub, expected: dict[str, bytes], tmp_path: Path, trouble: str, tries: int
) -> None:
    """Of a file that the first shards do not need."""
    hub.troubles = {NAMES[3]: [trouble] * 1000}
    prepared = {**fineweb(), "folder": tmp_path / "out", **ARGUMENTS}
    said = "dataset HuggingFaceFW/fineweb-edu cannot be fetched from the hub"
    with pytest.raises(ConfigError, match=said):
        prepare(**prepared)
    assert hub.paths().count(NAMES[3]) == tries
    hub.troubles = {}
    prepare(**prepared)
    assert hub.paths().count(NAMES[0]) == 1
    assert tokens(tmp_path / "out") == expected


@pytest.mark.parametrize("ranges", [True, False])
def test_a_transfer_is_resumed_by_another_process(hub: Hub, tmp_path: Path, ranges: bool) -> None:
    hub.ranges = ranges
    files = FetchedFiles(
        HubFiles("HuggingFaceFW/fineweb-edu", "sample/10BT"), tmp_path / "fetched", keep=False
    )
    whole = (hub.root / "HuggingFaceFW/fineweb-edu" / NAMES[0]).read_bytes()
    part = tmp_path / "fetched" / NAMES[0]
    part = part.with_name(f".{part.name}.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(whole[:1000])
    assert files.path(NAMES[0]).read_bytes() == whole
    assert hub.asked == [(NAMES[0], 1000)]
    files.release(NAMES[0])
    part.write_bytes(b"of something else" + whole)
    assert files.path(NAMES[0]).read_bytes() == whole


@pytest.mark.parametrize("counts", [COUNTS, {}])
def test_files_of_finished_shards_are_not_fetched_again(
    hub: Hub, tmp_path: Path, counts: dict[str, int]
) -> None:
    """Interrupted each time one batch later, also where the hash of a text decides."""
    url = "hf://datasets/HuggingFaceFW/fineweb-edu/sample/10BT"
    arguments = {"tokenizer": "bytes", **ARGUMENTS}

    def stop(batch: EncodedBatch) -> None:
        nonlocal batches
        batches += 1
        if batches > interrupted:
            raise KeyboardInterrupt

    prepare(find_corpus(url, **counts), folder=tmp_path / "unbroken", **arguments)
    interrupted = 0
    hub.asked.clear()
    while True:
        batches = 0
        if list((tmp_path / "out").glob("*.tokens")):
            hub.revisions.append(f"{interrupted:040}")  # a newer one each time
        try:
            corpus = find_corpus(url, **counts)
            manifest = prepare(corpus, folder=tmp_path / "out", on_batch=stop, **arguments)
            break
        except KeyboardInterrupt:
            interrupted += 1
    assert interrupted > 3 and manifest.source["revision"] == REVISION
    assert tokens(tmp_path / "out") == tokens(tmp_path / "unbroken")
    unbroken = prepare(find_corpus(url, **counts), folder=tmp_path / "unbroken", **arguments)
    assert manifest.source["files"] == unbroken.source["files"]
    assert all(hub.paths().count(name) <= 2 for name in NAMES)


def test_kept_files_are_a_local_corpus(
    hub: Hub, expected: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out, counts = tmp_path / "out", ["--train-documents", "180", "--validation-documents", "40"]
    words = ["fineweb-edu", "--tokenizer", "bytes", *counts, "--shard-tokens", "1000"]
    call(*words, "--out", out, "--keep", "--workers", "1")
    assert f"The files of fineweb-edu are in {out / 'fetched'}\n" in capsys.readouterr().out
    call(*words, "--local", out / "fetched", "--out", tmp_path / "again", "--workers", "1")
    assert tokens(out) == tokens(tmp_path / "again") == expected
    hub.asked.clear()
    (out / "train-00001.tokens").unlink()
    call(*words, "--out", out, "--verify", "--workers", "1")
    assert tokens(out) == expected and not hub.asked  # and they are still there
    assert len(list((out / "fetched").rglob("*.parquet"))) == 6


def test_a_damaged_shard_needs_its_own_file_alone(
    hub: Hub, expected: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    manifest = prepare(**fineweb(), folder=out, **ARGUMENTS)
    hub.asked.clear()
    hub.revisions.append("f" * 40)
    assert not mend(**fineweb(), folder=out, **ARGUMENTS) and not hub.asked
    first = 0
    for shard in manifest.splits["train"].shards:
        if first >= 80 and first + shard.documents <= 120:  # of the third file
            (out / f"{shard.name}.ends").unlink()
            assert [*mend(**fineweb(), folder=out, **ARGUMENTS)] == [shard.name]
            assert hub.paths() == [NAMES[2]] and not (out / "fetched").exists()
            break
        first += shard.documents
    assert hub.asked and tokens(out) == expected


def test_the_hubs_own_cache_is_used_and_left(
    hub: Hub, expected: dict[str, bytes], tmp_path: Path
) -> None:
    cached = [
        Path(
            hf_hub_download(
                "HuggingFaceFW/fineweb-edu", name, repo_type="dataset", revision=REVISION
            )
        )
        for name in NAMES[:2]
    ]
    hub.asked.clear()
    prepare(**fineweb(), folder=tmp_path / "out", **ARGUMENTS)
    assert tokens(tmp_path / "out") == expected and all(map(Path.exists, cached))
    assert not {*NAMES[:2]} & {*hub.paths()}


def test_another_beginning_does_not_use_the_files_of_an_earlier_one(
    hub: Hub, tmp_path: Path
) -> None:
    """Nothing of the first revision is in a shard, but its first file was fetched."""

    def stop(batch: EncodedBatch) -> None:
        raise KeyboardInterrupt

    large = {"workers": 1, "shard_tokens": 10**6}
    with pytest.raises(KeyboardInterrupt):
        prepare(**fineweb(), folder=tmp_path / "out", on_batch=stop, **large)
    hub.revisions.append("e" * 40)
    write_table(hub, "HuggingFaceFW/fineweb-edu/" + NAMES[0], [text.upper() for text in MADE[:40]])
    prepare(**fineweb(), folder=tmp_path / "out", **large)
    found = texts(tmp_path / "out", "train", ByteTokenizer())
    assert found[:40] == [text.upper() for text in MADE[:40]] and found[40:] == MADE[40:180]


def test_any_dataset_of_the_hub_is_a_corpus(hub: Hub, tmp_path: Path) -> None:
    top = hub.root / "some/one/texts"
    write_table(hub, "some/one/texts/b.parquet", MADE[:100])
    (top / "a.txt").write_text("a text")
    (top / "c.csv").write_text("not read")
    for url in ("hf://datasets/some/one", "hf://datasets/some/one@main/texts"):
        out = tmp_path / url[-3:]
        manifest = prepare(find_corpus(url), "bytes", out, **ARGUMENTS)
        found = texts(out, "train", ByteTokenizer()) + texts(out, "validation", ByteTokenizer())
        assert sorted(found) == sorted(["a text", *MADE[:100]])
        assert [*manifest.source["files"]] == ["texts/a.txt", "texts/b.parquet"]
    with pytest.raises(ConfigError, match=r"is not a dataset: write hf://datasets/OWNER/NAME"):
        find_corpus("hf://gpt2/x")
    with pytest.raises(ConfigError, match=r"some/one has no \.txt, .* in 'no'"):
        prepare(find_corpus("hf://datasets/some/one/no"), "bytes", tmp_path / "no", **ARGUMENTS)


def test_wikitext_comes_from_the_hub(hub: Hub, tmp_path: Path) -> None:
    for split, name in {"train": "A", "validation": "B", "test": "C"}.items():
        rows = ["", f" = {name} = \n", "", f" On {name} . \n"]
        file = f"Salesforce/wikitext/wikitext-2-raw-v1/{split}-00000-of-00001.parquet"
        write_table(hub, file, rows)
    prepare(find_corpus("wikitext-2"), "bytes", tmp_path / "out", **ARGUMENTS)
    for split, name in {"train": "A", "validation": "B", "test": "C"}.items():
        found = texts(tmp_path / "out", split, ByteTokenizer())
        assert found == [f" \n = {name} = \n \n On {name} . \n"]
    assert not (tmp_path / "out/fetched").exists()


def test_a_tokenizer_is_trained_on_what_is_fetched(hub: Hub, tmp_path: Path) -> None:
    corpus = fineweb()["corpus"]
    for workers in (1, 2):
        out = tmp_path / str(workers)
        prepare(corpus, 300, out, workers=workers, shard_tokens=1000)
    assert tokens(tmp_path / "1") == tokens(tmp_path / "2")


def test_a_hub_that_cannot_be_reached_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    with pytest.raises(ConfigError, match=r"cannot be fetched from the hub.*--local"):
        prepare(**fineweb(), folder=tmp_path / "out", **ARGUMENTS)


def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    source = HubFiles("a/b", "c")
    with pytest.raises(ConfigError, match=r"a file of the source is called '\.\./x\.parquet'"):
        FetchedFiles(source, tmp_path, keep=False).path("../x.parquet")
