"""Damaged shards are rebuilt from the source, and only those."""

import json
import os
import shlex
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixit_titan.data import verification
from mixit_titan.data.encoding import EncodedBatch
from mixit_titan.data.mending import _joined, mend
from mixit_titan.data.packing import PACKINGS
from mixit_titan.data.prepare import prepare
from mixit_titan.data.prepared import prepared_data
from mixit_titan.data.shards import open_split
from mixit_titan.data.sources import find_corpus
from mixit_titan.data.splits import Document, chosen
from mixit_titan.data.verification import verify
from mixit_titan.errors import ConfigError, RankFailed
from tests.data.test_prepare import call
from tests.data.tokens import content, stories, write_jsonl

MADE = stories(300)
ARGUMENTS = {"workers": 1, "shard_tokens": 1000}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def change(path: Path) -> None:
    """As a disk does that gives other bytes: no time is another."""
    content = bytearray(path.read_bytes())
    content[7] ^= 1
    path.write_bytes(content)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.fixture
def table(tmp_path: Path) -> str:
    pq.write_table(pa.table({"text": MADE}), tmp_path / "a.parquet", row_group_size=32)
    return str(tmp_path / "a.parquet")


def mended(source: str, out: Path, **counts: int) -> tuple[list[str], Counter[str]]:
    """The shards that were made again, and the documents that were encoded for it."""
    documents: Counter[str] = Counter()

    def count(batch: EncodedBatch) -> None:
        documents[batch.split] += len(batch.lengths)

    found = mend(find_corpus(source, **counts), "bytes", out, on_batch=count, **ARGUMENTS)
    return sorted(found), documents


@pytest.mark.parametrize("counts", [{}, {"train_documents": 200, "validation_documents": 50}])
@pytest.mark.parametrize("kind", ["lines", "table"])
def test_damaged_shards_are_made_again_to_the_same_bytes(
    corpus: str, table: str, tmp_path: Path, kind: str, counts: dict[str, int]
) -> None:
    source, out = corpus if kind == "lines" else table, tmp_path / "out"
    manifest = prepare(find_corpus(source, **counts), "bytes", out, **ARGUMENTS)
    before, train = content(out), manifest.splits["train"].shards
    untouched = {file: file.stat().st_mtime_ns for file in out.glob("train-00000.*")}
    last = train[-1]
    cut(out / "train-00001.tokens")
    change(out / "train-00002.ends")
    (out / "train-00005.ends").unlink()
    pipe(out / f"{last.name}.tokens")
    (out / "validation-00000.tokens").unlink()
    names = ["train-00001", "train-00002", "train-00005", last.name, "validation-00000"]
    found, documents = mended(source, out, **counts)
    assert found == names and content(out) == before and not list(out.glob(".*.part"))
    assert {file: file.stat().st_mtime_ns for file in untouched} == untouched
    of = {
        shard.name: shard.documents for split in manifest.splits.values() for shard in split.shards
    }
    assert documents == {
        "train": sum(of[name] for name in names[:-1]),
        "validation": of["validation-00000"],
    }
    assert mended(source, out, **counts) == ([], {})


def test_bytes_that_changed_unseen_are_found(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`.verified.json` says that the file is complete, and its times that it is still the same
    file."""
    out = tmp_path / "out"
    prepare(find_corpus(corpus), "bytes", out, **ARGUMENTS)
    verify(out)
    before = content(out)
    change(out / "train-00001.tokens")
    monkeypatch.setattr(verification, "_state", lambda expected: {})
    monkeypatch.setattr(verification, "_remembered", lambda folder: {})
    verify(out)  # it believes what it remembers
    assert mended(corpus, out)[0] == ["train-00001"] and content(out) == before


@pytest.mark.parametrize("how", ["another text", "a text less", "a file more", "gone"])
def test_a_source_that_changed_is_refused(tmp_path: Path, how: str) -> None:
    source, out = tmp_path / "texts", tmp_path / "out"
    source.mkdir()
    file = write_jsonl(source / "a.jsonl", MADE)
    prepare(find_corpus(str(source)), "bytes", out, **ARGUMENTS)
    (out / "train-00003.tokens").unlink()
    left = content(out)
    if how == "another text":
        text = file.read_text()
        file.write_text(text.replace("Story", "Stony"))
        message = r"texts has changed since .*out was prepared, and no longer gives train-00003"
    elif how == "a text less":
        write_jsonl(file, MADE[:-1])
        message = r"the files of texts have changed since .*out was prepared \(file_bytes is"
    elif how == "a file more":
        (source / "b.txt").write_text("more")
        message = r"the files of texts have changed since .*out was prepared \(files is 1 there"
    else:
        shutil.rmtree(source)
        message = "does not exist"
    with pytest.raises(ConfigError, match=message):
        mended(str(source), out)
    assert content(out) == left and not list(out.glob(".*.part"))


def test_a_source_of_another_time_is_the_same_source(corpus: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(find_corpus(corpus), "bytes", out, **ARGUMENTS)
    before = content(out)
    (out / "train-00003.tokens").unlink()
    os.utime(corpus, ns=(0, 0))
    assert mended(corpus, out)[0] == ["train-00003"] and content(out) == before


def run_advice(error: pytest.ExceptionInfo) -> None:
    command = str(error.value).partition(":\n  ")[2]
    program, name, *words = shlex.split(command)
    assert (program, name) == ("mixit-titan", "prepare")
    call(*words)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (cut, "train-00001.tokens has .* bytes, but its manifest says"),
        (change, "train-00001.tokens is damaged, its checksum"),
        (Path.unlink, "train-00001.tokens is missing"),
    ],
)
@pytest.mark.parametrize("trained", [False, True])
def test_a_run_names_the_shard_and_the_command_that_mends_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path], None],
    said: str,
    trained: bool,
) -> None:
    """The command is typed as it is printed, in another working directory."""
    monkeypatch.chdir(tmp_path)
    records = [json.dumps({"body": text}) for text in MADE]
    Path("my stories.jsonl").write_text("\n".join(records))
    tokenizer = ["--train-tokenizer", "300"] if trained else ["--tokenizer", "bytes"]
    options = ["--text-key", "body", "--train-documents", "250", "--shard-tokens", "900"]
    out = tmp_path / "out put"
    call("my stories.jsonl", *tokenizer, *options, "--out", out, "--workers", "1")
    before = content(out)
    damage(out / "train-00001.tokens")
    with pytest.raises(ConfigError, match=said) as error:
        prepared_data(str(out), None, vocab=512)
    with pytest.raises(SystemExit):  # as `prepare` does without --verify
        call("my stories.jsonl", *tokenizer, *options, "--out", out, "--workers", "1")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    run_advice(error)
    assert content(out) == before
    prepared_data(str(out), None, vocab=512)


def test_a_text_that_a_run_tokenised_is_mended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = tmp_path / "a.txt"
    text.write_text("one line\n" * 500)
    folder = Path(prepared_data(str(text), None, vocab=512)[0])
    before = content(folder)
    cut(folder / "train-00000.tokens")
    with pytest.raises(ConfigError, match=r"train-00000\.tokens has") as error:
        prepared_data(str(text), None, vocab=512)
    run_advice(error)
    assert content(folder) == before


@pytest.mark.parametrize("gone", [False, True])
def test_a_shard_that_breaks_in_the_midst_of_a_run_is_named_with_the_command(
    corpus: str, tmp_path: Path, gone: bool
) -> None:
    prepare(find_corpus(corpus), "bytes", tmp_path / "out", **ARGUMENTS)
    rows = PACKINGS["documents"](open_split(tmp_path / "out", "train"), 64)
    tokens = tmp_path / "out" / "train-00001.tokens"
    if gone:
        tokens.unlink()
    else:
        tokens.write_bytes(b"\xff" * tokens.stat().st_size)
    with pytest.raises(
        (RankFailed, ConfigError), match=r"repair it with:\n  mixit-titan prep.*--ver"
    ):
        rows.read(np.arange(rows.rows))


def test_a_folder_of_an_earlier_version_is_mended_too(corpus: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(find_corpus(corpus), "bytes", out, **ARGUMENTS)
    table = json.loads((out / "manifest.json").read_text())
    del table["source"]["command"]
    (out / "manifest.json").write_text(json.dumps(table))
    before = content(out)
    cut(out / "train-00001.tokens")
    with pytest.raises(ConfigError, match="run the command that prepared the folder again, with"):
        verify(out)
    mended(corpus, out)
    assert content(out) == before


def test_a_damaged_tokenizer_is_put_back(tmp_path: Path) -> None:
    corpus = find_corpus(str(write_jsonl(tmp_path / "a.jsonl", MADE)))
    out = tmp_path / "out"
    prepare(corpus, 300, out, **ARGUMENTS)
    before = content(out)
    (out / "tokenizer" / "tokenizer.json").write_text("{")
    (out / "train-00001.ends").unlink()
    said: list[str] = []
    assert [*mend(corpus, 300, out, say=said.append, **ARGUMENTS)] == ["train-00001"]
    assert content(out) == before
    assert "tokenizer was damaged: its files have been restored" in said[0]
    assert "train-00001.ends is missing" in said[1]


def test_a_folder_in_place_of_a_shard_is_named(corpus: str, tmp_path: Path) -> None:
    prepare(find_corpus(corpus), "bytes", tmp_path / "out", **ARGUMENTS)
    tokens = tmp_path / "out" / "train-00001.tokens"
    tokens.unlink()
    tokens.mkdir()
    with pytest.raises(ConfigError, match=r"train-00001.tokens cannot .*a folder\): remove it"):
        mended(corpus, tmp_path / "out")


def test_the_command_says_what_it_mended(
    corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "out"
    words = (corpus, "--tokenizer", "bytes", "--out", out, "--workers", "1")
    call(*words, "--verify")  # also in the call that prepares it
    assert "300 documents" in capsys.readouterr().out
    call(*words, "--verify")
    assert "is prepared and complete: nothing to do" in capsys.readouterr().out
    (out / "validation-00000.ends").unlink()
    call(*words, "--verify")
    printed = capsys.readouterr()
    assert "validation-00000.ends is missing (No such file or directory)\n" in printed.err
    assert f"1 damaged shard was rebuilt in {out}, with the same bytes\n" in printed.out
    assert printed.out.endswith(f"train_configs/debug_mixit.toml --data.path {out}\n")


def test_nothing_is_read_after_the_last_document_that_is_wanted() -> None:
    taken = []
    texts = (taken.append(n) or Document("train", b"%d" % n) for n in range(100))
    found = [text for _, text in chosen(texts, {"train": [range(3, 5), range(8, 9)], "test": []})]
    assert found == [b"3", b"4", b"8"] and taken == list(range(9))
    assert _joined([range(0, 2), range(2, 5), range(7, 8)]) == [range(0, 5), range(7, 8)]
