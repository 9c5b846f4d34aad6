"""`mixit-titan prepare`: what it writes, and what it prints."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mixit_titan.cli import main
from mixit_titan.data import writer
from mixit_titan.data.command import Bar
from mixit_titan.data.prepare import prepare
from mixit_titan.data.shards import Shard
from mixit_titan.data.sources import find_corpus
from mixit_titan.data.tokenizers import ByteTokenizer, build_tokenizer, saved_tokenizer
from mixit_titan.data.verification import verify
from tests.data.test_tokenizers import R50K, SHARED
from tests.data.tokens import content, documents, stories, texts, write_jsonl

MADE = stories(300)


def call(*arguments: str | Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["mixit-titan", "prepare", *map(str, arguments)])
        main()


def test_shards_hold_every_document_once(corpus: str, tmp_path: Path) -> None:
    manifest = prepare(find_corpus(corpus), "bytes", tmp_path / "out", workers=2, shard_tokens=1000)
    found = {split: texts(tmp_path / "out", split, ByteTokenizer()) for split in manifest.splits}
    order = {
        split: [t.decode() for s, t in find_corpus(corpus).documents() if s == split]
        for split in found
    }
    assert found == order and sorted(found["train"] + found["validation"]) == sorted(MADE)
    for name, split in manifest.splits.items():
        assert split.bytes == sum(len(text.encode()) for text in found[name])
        assert split.tokens == split.bytes + split.documents  # of bytes
        assert all(shard.tokens >= 1000 for shard in split.shards[:-1])
        # Without its last document a shard is not full yet.
        ids, full = documents(tmp_path / "out", name), 0
        for shard in split.shards[:-1]:
            full += shard.documents
            assert shard.tokens - len(ids[full - 1]) - 1 < 1000
    assert len(manifest.splits["train"].shards) > 10
    assert verify(tmp_path / "out") == manifest


def test_the_number_of_workers_changes_no_byte(corpus: str, tmp_path: Path) -> None:
    for workers in (1, 2, 3):
        prepare(
            find_corpus(corpus), "bytes", tmp_path / str(workers), workers=workers, shard_tokens=999
        )
    assert content(tmp_path / "1") == content(tmp_path / "2") == content(tmp_path / "3")


def test_a_killed_preparation_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    corpus = str(write_jsonl(tmp_path / "few.jsonl", MADE[:70]))
    script = Path(__file__).with_name("interruption.py")
    subprocess.run([sys.executable, script, corpus, tmp_path / "out"], check=True, timeout=600)
    whole = content(tmp_path / "out" / "whole")
    assert len(whole) > 10
    killed = [folder for folder in (tmp_path / "out").iterdir() if folder.name.isdigit()]
    unfinished = [folder for folder in killed if not (folder / "manifest.json").exists()]
    assert len(unfinished) > 10
    for folder in killed:
        prepare(find_corpus(corpus), 300, folder, workers=1, shard_tokens=800)
        assert content(folder) == whole, folder
        assert not list(folder.glob(".*.part"))
    assert content(tmp_path / "out" / "again") == whole


def test_finished_documents_are_not_tokenised_again(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(Exception):
        pass

    def stop_at_fifth(self: writer.SplitWriter) -> None:
        finish(self)
        if len(self.journal.shards[self.split]) == 5:
            raise Stop

    finish = writer.SplitWriter.finish
    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(writer.SplitWriter, "finish", stop_at_fifth)
        prepare(find_corpus(corpus), "bytes", tmp_path / "out", workers=1, shard_tokens=1000)
    before = json.loads((tmp_path / "out" / ".prepare.json").read_text())
    finished = sum(s["documents"] for shards in before["shards"].values() for s in shards)
    again = []
    prepare(
        find_corpus(corpus),
        "bytes",
        tmp_path / "out",
        workers=1,
        shard_tokens=1000,
        on_batch=lambda batch: again.append(len(batch.lengths)),
    )
    assert sum(again) == len(MADE) - finished < len(MADE)
    assert sorted(
        documents(tmp_path / "out", "train") + documents(tmp_path / "out", "validation")
    ) == sorted(list(text.encode()) for text in MADE)


def test_the_command_says_what_it_did(
    corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    arguments = (corpus, "--tokenizer", "bytes", "--out", tmp_path / "out", "--workers", "1")
    call(*arguments)
    printed = capsys.readouterr()
    assert "validation" in printed.out and "300 documents" in printed.out
    assert f"train_configs/debug_mixit.toml --data.path {tmp_path / 'out'}\n" in printed.out
    assert "Cost of data.packing" in printed.out and "Encoding with bytes" in printed.err
    assert "tokens (" in printed.err and "/s)" in printed.err
    before = content(tmp_path / "out")
    call(*arguments)
    assert "is prepared and complete: nothing to do" in capsys.readouterr().out
    assert content(tmp_path / "out") == before


def test_the_bar_counts_what_was_finished_before(corpus: str) -> None:
    finished = [Shard(name="train-00000", documents=7, tokens=9, bytes=100, sha256={})]
    for counts, completed, total in (
        ({}, 100, Path(corpus).stat().st_size),
        ({"train_documents": 20, "validation_documents": 5}, 7, 25),
    ):
        with Bar(find_corpus(corpus, **counts)) as bar:
            bar.begin(finished)
            (task,) = bar.progress.tasks
            assert (task.completed, task.total) == (completed, total)


@pytest.mark.parametrize(
    ("arguments", "message"),
    {
        "other.jsonl --tokenizer bytes": "other settings (corpus is 'stories.jsonl' there",
        "stories.jsonl --tokenizer ranks.tiktoken": "other settings (tokenizer is",
        "stories.jsonl --tokenizer bytes --shard-tokens 9": "(shard_tokens is 67108864 there",
        "stories.jsonl --train-tokenizer 300": "(train_tokenizer is None there and 300 here)",
        "stories.jsonl --train-tokenizer 200": "at least 257 tokens are needed",
        "stories.jsonl": "give either --tokenizer, or the size",
        "stories.jsonl --tokenizer bytes --workers 0": "--workers is 0: it must be in 1..",
        "stories.jsonl --tokenizer bites": "'bites' is neither 'bytes', nor a .tiktoken file",
        "nothing.txt --tokenizer bytes": "'nothing.txt' does not exist",
    }.items(),
)
def test_another_preparation_into_the_same_folder_is_refused(
    corpus: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    arguments: str,
    message: str,
) -> None:
    from tests.data.test_tokenizers import write_ranks

    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "other.jsonl", MADE[:200])
    write_ranks(tmp_path / "ranks.tiktoken", 300)
    prepare(find_corpus("stories.jsonl"), "bytes", Path("out"), workers=1)
    before = content(tmp_path / "out")
    with pytest.raises(SystemExit):
        call(*arguments.split(), "--out", "out")
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert content(tmp_path / "out") == before


def test_a_large_text_without_lines_goes_through_in_pieces(tmp_path: Path) -> None:
    text = "数学🙂" * 100_000
    (tmp_path / "a.txt").write_text(text)
    prepare(find_corpus(str(tmp_path / "a.txt")), "bytes", tmp_path / "out", workers=2)
    parts = [texts(tmp_path / "out", s, ByteTokenizer()) for s in ("train", "validation")]
    assert "".join(parts[0] + parts[1]) == text and len(parts[0]) == 4


@pytest.mark.skipif(not R50K.exists(), reason="no r50k_base.tiktoken beside the project")
@pytest.mark.parametrize("name", ["fineweb_edu", "wikitext2"])
def test_real_text_decodes_exactly(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    if name == "fineweb_edu":
        file = SHARED / name / "fineweb_edu_sample.jsonl"
        made = [json.loads(line)["text"] for line in file.open(encoding="utf-8")]
        expected = {"train": made[:150], "validation": made[150:]}
        counts = {"train_documents": 150, "validation_documents": len(made) - 150}
        source = find_corpus("fineweb-edu", local=str(file), **counts)
    else:
        source = find_corpus("wikitext-2", local=str(SHARED / name))
        files = {"train": "train.txt", "validation": "valid.txt"}
        expected = {s: [(SHARED / name / f).read_bytes().decode()] for s, f in files.items()}
    manifest = prepare(source, str(R50K), out, workers=2, shard_tokens=500_000)
    assert manifest.tokenizer.vocab_size == 50257 and manifest.dtype == "uint16"
    tokenizer = build_tokenizer(saved_tokenizer(out))  # the copy
    for split in expected:
        found = texts(out, split, tokenizer)
        if name == "wikitext2":
            assert len(found) == {"train": 600, "validation": 60}[split]  # articles
            found = ["".join(found)]
        assert found == expected[split]
