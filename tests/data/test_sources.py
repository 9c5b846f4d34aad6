"""Corpora by name, their splits, and the hub."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixit_titan.data.corpus import Corpus
from mixit_titan.data.readers import read_pieces
from mixit_titan.data.sources import find_corpus, fineweb_files
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
    with pytest.raises(ConfigError, match="has 50 documents, but 44 for training and 7"):
        splits(find_corpus(file, train_documents=44, validation_documents=7))


@pytest.mark.parametrize(("train", "validation"), [(30, 1), (60, 3), (19, 1)])
@pytest.mark.parametrize("kind", ["stdlib", "file", "folder", "fineweb-edu"])
def test_training_documents_alone_hold_a_twentieth_as_many_out(
    tmp_path: Path, kind: str, train: int, validation: int
) -> None:
    made = [f"text {n}" for n in range(100)]
    file = str(write_jsonl(tmp_path / "a.jsonl", made))
    name = {"file": file, "folder": str(tmp_path)}.get(kind, kind)
    local = file if kind == "fineweb-edu" else None
    found = splits(find_corpus(name, local=local, train_documents=train))
    assert {split: len(texts) for split, texts in found.items()} == {
        "train": train,
        "validation": validation,
    }


def test_training_documents_alone_leave_wikitext_its_own_validation(tmp_path: Path) -> None:
    for name, count in {"train": 5, "valid": 3}.items():
        lines = "".join(f" \n = {n} = \n \n On {n} . \n" for n in range(count))
        (tmp_path / f"{name}.txt").write_text(lines)
    found = splits(find_corpus("wikitext-2", local=str(tmp_path), train_documents=2))
    assert {split: len(texts) for split, texts in found.items()} == {"train": 2, "validation": 3}


@pytest.mark.parametrize(("train", "validation"), [(9_500_000, 4_096), (81_920, 4_096), (200, 10)])
def test_fineweb_holds_out_no_more_than_the_paper(
    tmp_path: Path, train: int, validation: int
) -> None:
    local = str(write_jsonl(tmp_path / "a.jsonl", ["x"]))
    corpus = find_corpus("fineweb-edu", local=local, train_documents=train)
    assert corpus.validation_documents == validation


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
        ({"name": "wikitext-2", "subset": "x"}, "--subset is only for fineweb-edu"),
        (
            {"name": "stdlib", "validation_documents": 5},
            "--validation-documents needs --train-documents",
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
    with pytest.raises(ConfigError, match=r"dead\.txt links to a file that does not exist: fix"):
        find_corpus(str(corpus))


def test_a_folder_without_texts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no files that end in \.txt, \.jsonl"):
        find_corpus(str(tmp_path))
    (tmp_path / "a.json").write_text('{"text": "x"}')
    with pytest.raises(ConfigError, match=r"a\.json has an unsupported ending: it must be \.txt"):
        find_corpus(str(tmp_path / "a.json"))
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(ConfigError, match="no files for training and validation"):
        find_corpus("wikitext-2", local=str(tmp_path))


def test_wikitext_has_its_three_splits(tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "wikitext-2-raw-v1"
    text = {"train": "A", "validation": "B", "test": "C"}
    for split, name in text.items():
        rows = ["", f" = {name} = \n", "", f" On {name} . \n"]
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"text": rows}), folder / f"{split}-00000-of-00001.parquet")
    expected = {s: [f" \n = {name} = \n \n On {name} . \n"] for s, name in text.items()}
    local = str(tmp_path / "hub")
    assert splits(find_corpus("wikitext-2", local=local)) == expected
    (tmp_path / "texts").mkdir()
    for split, name in {"train": "train.txt", "validation": "valid.txt"}.items():
        (tmp_path / "texts" / name).write_text(expected[split][0])
    found = splits(find_corpus("wikitext-2", local=str(tmp_path / "texts")))
    assert found == {split: expected[split] for split in ("train", "validation")}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda top: os.mkfifo(top / "b.txt"), r"b.txt is not a regular file: remove it"),
        (lambda top: (top / "b.txt").symlink_to("x"), r"b.txt links to a file that does not exist"),
        (lambda top: (top / "b.txt").symlink_to(top / "b.txt"), r"b.txt links to a file that"),
        (lambda top: (top / "up").symlink_to("/"), r"up links to a folder that contains .*texts"),
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
    with pytest.raises(ConfigError, match="belongs to the kernel and is not a corpus"):
        find_corpus(path)


def test_a_device_or_a_pipe_is_no_corpus(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    for path in ("/dev/zero", str(tmp_path / "pipe.txt")):
        with pytest.raises(ConfigError, match=f"^{path} is neither a file nor a folder: name one"):
            find_corpus(path)


def test_no_name_is_not_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("text")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"^'' does not exist: name a file, a folder, or one of"):
        find_corpus("")


def test_a_text_that_a_disk_does_not_give_is_one_sentence() -> None:
    broken = Path("/proc/self/mem")  # nothing is mapped at address 0
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
