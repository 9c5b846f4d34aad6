"""Corpora by name, their splits, and the hub."""

import errno
import http.server
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import huggingface_hub.constants as hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixit_titan.data.encoding import EncodedBatch
from mixit_titan.data.prepare import prepare
from mixit_titan.data.readers import read_pieces
from mixit_titan.data.sources import Corpus, find_corpus, fineweb_files
from mixit_titan.data.splits import last_part
from mixit_titan.errors import ConfigError
from tests.data.tokens import stories, write_jsonl


def splits(corpus: Corpus) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for split, text in corpus.documents():
        found.setdefault(split, []).append(text.decode())
    return found


def test_equal_texts_are_in_one_split(tmp_path: Path) -> None:
    made = stories(1000)
    found = splits(find_corpus(str(write_jsonl(tmp_path / "a.jsonl", made))))
    assert sorted(found["train"] + found["validation"]) == sorted(made)
    assert not set(found["train"]) & set(found["validation"])
    assert len(set(made)) < 900 and 20 < len(found["validation"]) < 100
    again = splits(find_corpus(str(write_jsonl(tmp_path / "b.jsonl", made[::-1]))))
    assert set(again["validation"]) == set(found["validation"])


@pytest.mark.parametrize("count", [2, 3, 10])
def test_few_texts_have_a_validation_split(tmp_path: Path, count: int) -> None:
    made = [f"text {n}" for n in range(count)]
    found = splits(find_corpus(str(write_jsonl(tmp_path / "a.jsonl", made * 2))))
    assert set(found["train"]) | set(found["validation"]) == set(made)
    assert not set(found["train"]) & set(found["validation"])


def test_a_file_of_a_folder_stays_in_its_split(tmp_path: Path) -> None:
    def write(names: list[str]) -> dict[str, list[str]]:
        for name in names:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(name)
        return splits(find_corpus(str(tmp_path)))

    before = write([f"{n % 3}/{n}.txt" for n in range(100)])
    assert 0 < len(before["validation"]) < 20 and len(before["train"]) > 80
    after = write([f"{n % 3}/{n}.txt" for n in range(100, 200)])
    for split in before:
        assert set(before[split]) < set(after[split])


@pytest.mark.parametrize("text", ["one line\n" * 100, "word " * 200, "数学" * 300], ids=len)
def test_the_last_part_of_a_single_text_is_for_validation(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    found = splits(find_corpus(str(tmp_path / "a.txt")))
    assert "".join(found["train"] + found["validation"]) == text
    assert 0.03 < len("".join(found["validation"])) / len(text) < 0.07
    assert splits(find_corpus(str(tmp_path))) == found  # a folder with one file


def test_counts_overrule_the_hash(tmp_path: Path) -> None:
    made = stories(50)
    file = str(write_jsonl(tmp_path / "a.jsonl", made))
    found = splits(find_corpus(file, train_documents=30, validation_documents=7))
    assert found == {"train": made[:30], "validation": made[30:37]}
    with pytest.raises(ConfigError, match="has 50 documents and 44 for training and 7"):
        splits(find_corpus(file, train_documents=44, validation_documents=7))


@pytest.mark.parametrize(("train", "validation"), [(30, 1), (60, 3)])
def test_training_documents_alone_hold_a_twentieth_as_many_out(train: int, validation: int) -> None:
    corpus = find_corpus("stdlib", train_documents=train)
    assert (corpus.train_documents, corpus.validation_documents) == (train, validation)


def test_the_papers_split_is_the_default_of_fineweb(tmp_path: Path) -> None:
    corpus = find_corpus("fineweb-edu", local=str(write_jsonl(tmp_path / "a.jsonl", ["x"])))
    assert (corpus.train_documents, corpus.validation_documents) == (1_048_576, 4_096)
    assert fineweb_files("sample-10BT").folder == "sample/10BT"
    assert fineweb_files("default").folder == "data"
    assert fineweb_files("CC-MAIN-2024-10").folder == "data/CC-MAIN-2024-10"


def test_the_standard_library_is_there() -> None:
    found = splits(find_corpus("stdlib"))
    assert any("def commonprefix" in text for text in found["train"] + found["validation"])
    assert found["train"] and found["validation"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"name": "/no/such"},
            "'/no/such' does not exist: name a file, a folder, or one of stdlib",
        ),
        ({"name": "wikitext2"}, "'wikitext2' does not exist: did you mean 'wikitext-2'?"),
        ({"name": "wikitext-2", "local": "/no/such"}, "--local '/no/such' does not exist"),
        ({"name": "stdlib", "local": "x"}, "--local is for fineweb-edu"),
        ({"name": "wikitext-2", "subset": "x"}, "--subset is for fineweb-edu"),
        (
            {"name": "stdlib", "validation_documents": 5},
            "given alone: name --train-documents",
        ),
        ({"name": "stdlib", "train_documents": 0}, "--train-documents is 0: it must be at least 1"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_corpus(**arguments)


def test_linked_folders_are_read_once_and_dead_links_said(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    write_jsonl(tmp_path / "elsewhere" / "a.jsonl", stories(20))
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "linked").symlink_to(tmp_path / "elsewhere")
    (corpus / "linked" / "round").symlink_to(corpus)
    assert find_corpus(str(corpus)).files.names == ("linked/a.jsonl",)
    (corpus / "dead.txt").symlink_to(tmp_path / "nowhere.txt")
    with pytest.raises(ConfigError, match=r"dead\.txt links to a file that is not there: mend"):
        find_corpus(str(corpus))


def test_a_folder_without_texts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no files that end in \.txt, \.jsonl"):
        find_corpus(str(tmp_path))
    (tmp_path / "a.json").write_text('{"text": "x"}')
    with pytest.raises(ConfigError, match=r"a\.json is not read by its ending: it must be \.txt"):
        find_corpus(str(tmp_path / "a.json"))
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(ConfigError, match="no files for training and validation"):
        find_corpus("wikitext-2", local=str(tmp_path))


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub of these tests is this machine, whatever the environment says of the real one."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", False)


REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def newest() -> list[str]:
    """The hub's revisions; the last one is the newest."""
    return [REVISION]


@pytest.fixture
def hub_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: list[str]
) -> Iterator[Path]:
    """A folder whose datasets a local server offers as the hub does."""
    root = tmp_path / "hub"
    root.mkdir()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = self.path.split("?")[0].strip("/").split("/")
            if parts[:2] == ["api", "datasets"]:
                self.dataset("/".join(parts[2:4]), parts[5] if len(parts) > 5 else newest[-1])
            else:
                self.file(root / "/".join(parts[1:3]) / "/".join(parts[5:]))

        do_HEAD = do_GET

        def dataset(self, repo: str, revision: str) -> None:
            files = [p for p in (root / repo).rglob("*") if p.is_file()]
            names = [{"rfilename": p.relative_to(root / repo).as_posix()} for p in files]
            self.answer(json.dumps({"id": repo, "sha": revision, "siblings": names}).encode())

        def file(self, path: Path) -> None:
            self.answer(path.read_bytes(), {"X-Repo-Commit": REVISION, "ETag": f'"{path.name}"'})

        def answer(self, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(200)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    resolve = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(hub, "ENDPOINT", address)
    monkeypatch.setattr(hub, "HUGGINGFACE_CO_URL_TEMPLATE", resolve)
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield root
    server.shutdown()
    server.server_close()


def write_table(path: Path, texts: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": texts, "url": texts}), path)


def test_fineweb_comes_from_the_hub_in_order(hub_folder: Path) -> None:
    made = stories(40)
    sample = hub_folder / "HuggingFaceFW/fineweb-edu/sample"
    write_table(sample / "10BT/001_00000.parquet", made[20:])
    write_table(sample / "10BT/000_00000.parquet", made[:20])
    write_table(sample / "100BT/000_00000.parquet", ["of another subset"])
    corpus = find_corpus("fineweb-edu", train_documents=25, validation_documents=10)
    assert splits(corpus) == {"train": made[:25], "validation": made[25:35]}
    assert corpus.files.state() == REVISION
    with pytest.raises(ConfigError, match="has no tables in 'sample/11BT'"):
        splits(find_corpus("fineweb-edu", subset="sample-11BT"))


def test_a_preparation_goes_on_with_the_revision_that_it_began_with(
    hub_folder: Path, newest: list[str], tmp_path: Path
) -> None:
    table = hub_folder / "HuggingFaceFW/fineweb-edu/sample/10BT/000_00000.parquet"
    write_table(table, stories(40))
    corpus = find_corpus("fineweb-edu", train_documents=30, validation_documents=10)

    def stop(batch: EncodedBatch) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(corpus, "bytes", tmp_path / "out", workers=1, shard_tokens=99, on_batch=stop)
    newest.append("f" * 40)
    corpus = find_corpus("fineweb-edu", train_documents=30, validation_documents=10)
    manifest = prepare(corpus, "bytes", tmp_path / "out", workers=1, shard_tokens=99)
    assert corpus.files.state() == "f" * 40
    assert manifest.source["revision"] == REVISION
    assert manifest.splits["train"].documents == 30


def test_wikitext_has_its_three_splits(hub_folder: Path, tmp_path: Path) -> None:
    folder = hub_folder / "Salesforce/wikitext/wikitext-2-raw-v1"
    text = {"train": "A", "validation": "B", "test": "C"}
    for split, name in text.items():
        rows = ["", f" = {name} = \n", "", f" On {name} . \n"]
        write_table(folder / f"{split}-00000-of-00001.parquet", rows)
    expected = {s: [f" \n = {name} = \n \n On {name} . \n"] for s, name in text.items()}
    assert splits(find_corpus("wikitext-2")) == expected
    local = str(hub_folder / "Salesforce/wikitext")
    assert splits(find_corpus("wikitext-2", local=local)) == expected
    (tmp_path / "texts").mkdir()
    for split, name in {"train": "train.txt", "validation": "valid.txt"}.items():
        (tmp_path / "texts" / name).write_text(expected[split][0])
    found = splits(find_corpus("wikitext-2", local=str(tmp_path / "texts")))
    assert found == {split: expected[split] for split in ("train", "validation")}


def test_a_hub_that_cannot_be_reached_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    with pytest.raises(ConfigError, match=r"cannot be fetched from the hub.*--local"):
        splits(find_corpus("fineweb-edu"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda top: os.mkfifo(top / "b.txt"), r"b.txt is no file: remove it"),
        (lambda top: (top / "b.txt").symlink_to("x"), r"b.txt links to a file that is not there"),
        (lambda top: (top / "b.txt").symlink_to(top / "b.txt"), r"b.txt links to a file that is"),
        (lambda top: (top / "up").symlink_to("/"), r"up links to a folder that .*texts is in"),
    ],
)
def test_what_is_no_file_of_a_corpus_is_named(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("text")
    make(folder)
    with pytest.raises(ConfigError, match=message):
        find_corpus(str(folder))


def test_a_link_to_a_folder_inside_is_followed_once(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a.txt").write_text("text")
    (tmp_path / "below" / "again").symlink_to(tmp_path / "below")
    assert find_corpus(str(tmp_path)).files.names == ("below/a.txt",)


@pytest.mark.parametrize("path", ["/proc", "/proc/self/root/proc", "/sys", "/proc/self/mem"])
def test_the_kernels_files_are_no_corpus(path: str) -> None:
    with pytest.raises(ConfigError, match="is the kernel's, and no corpus"):
        find_corpus(path)


def test_a_text_that_a_disk_does_not_give_is_one_sentence() -> None:
    broken = Path("/proc/self/mem")  # nothing is mapped at its start
    with pytest.raises(ConfigError, match="mem cannot be read: Input/output error"):
        last_part(broken)
    with pytest.raises(ConfigError, match="mem cannot be read: Input/output error"):
        list(read_pieces(broken, 0, 1))


def test_a_folder_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not skipped, which would be another corpus. The tests may run as root, who can read all."""
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "closed").mkdir()
    scan = os.scandir

    def refuse(path: str) -> object:
        if Path(path).name == "closed":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(ConfigError, match="closed cannot be read: Permission denied"):
        find_corpus(str(tmp_path))
