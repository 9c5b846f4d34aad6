"""Texts that a run tokenises on the way, and tokenizers that are trained on a corpus."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from mixit_titan.data.bpe import train_tokenizer
from mixit_titan.data.prepare import prepare
from mixit_titan.data.prepared import prepared_data, prepared_folder
from mixit_titan.data.sources import find_corpus
from mixit_titan.data.splits import Document
from mixit_titan.data.tokenizers import ByteTokenizer, build_tokenizer, fingerprint, saved_tokenizer
from mixit_titan.errors import ConfigError
from tests.data.test_tokenizers import TEXT, write_ranks
from tests.data.tokens import content, documents, stories, texts, write_jsonl


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mixit_titan"


def test_a_text_is_prepared_once_for_each_state_and_tokenizer(tmp_path: Path, cache: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("one line\n" * 50)
    write_ranks(tmp_path / "r.tiktoken", 300)
    first = prepared_folder(str(text), "bytes")
    assert "".join(texts(first, "train", ByteTokenizer())) in text.read_text()
    stamp = (first / "manifest.json").stat().st_mtime_ns
    assert prepared_folder(str(text), "bytes") == first
    assert (first / "manifest.json").stat().st_mtime_ns == stamp
    other = prepared_folder(str(text), str(tmp_path / "r.tiktoken"))
    text.write_text("two line\n" * 50)
    os.utime(text, ns=(1, 1))
    changed = prepared_folder(str(text), "bytes")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a.txt").write_text("six line\n" * 50)
    os.utime(tmp_path / "b" / "a.txt", ns=(1, 1))
    elsewhere = prepared_folder(str(tmp_path / "b" / "a.txt"), "bytes")
    assert len({first, other, changed, elsewhere}) == 4 == len(list(cache.iterdir()))
    assert prepared_folder(str(first), "bytes") == first  # is one already


def test_a_folder_may_be_called_like_a_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wikitext-2").mkdir()
    write_jsonl(tmp_path / "wikitext-2" / "a.jsonl", stories(30))
    monkeypatch.chdir(tmp_path)
    assert len(documents(prepared_folder("wikitext-2", "bytes"), "train")) > 20
    with pytest.raises(ConfigError, match=r"data\.path = 'wikitext-103' does not exist"):
        prepared_folder("wikitext-103", "bytes")


def test_processes_that_ask_at_once_get_one_folder(tmp_path: Path, cache: Path) -> None:
    """Three processes, forked by one that has nothing else to do."""
    write_jsonl(tmp_path / "a.jsonl", stories(3000))
    script = f"""
import os
from mixit_titan.data.prepared import prepared_folder
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        folder = prepared_folder({str(tmp_path / "a.jsonl")!r}, "bytes")
        os._exit(0 if (folder / "manifest.json").is_file() else 1)
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)
    (folder,) = cache.iterdir()
    assert len(documents(folder, "train")) + len(documents(folder, "validation")) == 3000


def test_a_trained_tokenizer_knows_its_corpus_and_every_byte(tmp_path: Path) -> None:
    made = [f"{story} <|endoftext|> the end" for story in stories(200)]
    corpus = find_corpus(str(write_jsonl(tmp_path / "a.jsonl", made)))
    manifest = prepare(corpus, 300, tmp_path / "out", workers=2)
    name = saved_tokenizer(tmp_path / "out")
    tokenizer = build_tokenizer(name)
    assert manifest.tokenizer.vocab_size == tokenizer.get_vocab_size() == 300
    assert tokenizer.eos_id == manifest.tokenizer.eos_id is not None
    assert manifest.tokenizer.fingerprint == fingerprint(tokenizer)
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
    assert len(tokenizer.encode("Story")) < len("Story")
    # What looks like the end of a text is not one: the documents are those that went in.
    ids = documents(tmp_path / "out", "train")
    assert all(tokenizer.eos_id not in document for document in ids)
    found = texts(tmp_path / "out", "train", tokenizer)
    assert found == [text.decode() for split, text in corpus.documents() if split == "train"]


def test_training_a_tokenizer_again_gives_the_same(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", stories(200))
    for name in ("a", "b"):
        prepare(find_corpus(str(file)), 400, tmp_path / name, workers=1)
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_a_prepared_folder_brings_its_tokenizer(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", stories(50))
    write_ranks(tmp_path / "r.tiktoken", 70_000)  # too many for 16 bits
    manifest = prepare(
        find_corpus(str(file)), str(tmp_path / "r.tiktoken"), tmp_path / "ranks", workers=2
    )
    assert manifest.dtype == "uint32"
    (tmp_path / "r.tiktoken").unlink()
    tokenizer = build_tokenizer(saved_tokenizer(tmp_path / "ranks"))
    assert set(texts(tmp_path / "ranks", "train", tokenizer)) <= set(stories(50))
    assert max(max(ids) for ids in documents(tmp_path / "ranks", "train")) > 255


@pytest.mark.parametrize("damage", ["gone", "cut short", "another", "eos_id"])
def test_a_folder_without_its_tokenizer_is_not_whole(tmp_path: Path, damage: str) -> None:
    file = str(write_jsonl(tmp_path / "a.jsonl", stories(50)))
    out = tmp_path / "out"
    prepare(find_corpus(file), 300, out, workers=1)
    tokenizer, manifest = out / "tokenizer" / "tokenizer.json", out / "manifest.json"
    text = tokenizer.read_text()
    if damage == "gone":
        shutil.rmtree(out / "tokenizer")
    elif damage == "cut short":
        tokenizer.write_text(text[:1000])
    elif damage == "another":
        tokenizer.write_text(text.replace('"a"', '"\u0100\u0101"', 1))
    else:
        manifest.write_text(manifest.read_text().replace('"eos_id": 0', '"eos_id": 99'))
    said = (
        r"out/tokenizer.*repair it with:\n  mixit-titan prepare .*a\.jsonl --train-tokenizer 300 "
    )
    if damage == "eos_id":  # of the manifest, which nothing is compared to
        said = r"train-00000.tokens.*end-of-text id.*delete the folder and prepare it again"
    with pytest.raises(ConfigError, match=said):
        prepare(find_corpus(file), 300, out, workers=1)
    with pytest.raises(ConfigError, match=said):
        prepared_data(str(out), None, vocab=512)


def test_a_tokenizer_that_cuts_and_pads_texts_does_not_here(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", stories(50))
    prepare(find_corpus(str(file)), 300, tmp_path / "whole", workers=1)
    folder = tmp_path / "whole" / "tokenizer"
    cutting = Tokenizer.from_file(str(folder / "tokenizer.json"))
    cutting.enable_truncation(5)
    cutting.enable_padding(length=8)
    cutting.save(str(folder / "tokenizer.json"))
    manifest = prepare(find_corpus(str(file)), str(folder), tmp_path / "out", workers=1)
    assert manifest.tokenizer.fingerprint == fingerprint(build_tokenizer(str(folder)))
    assert documents(tmp_path / "out", "train") == documents(tmp_path / "whole", "train")


def test_another_end_of_text_is_another_tokenizer(tmp_path: Path) -> None:
    train_tokenizer([Document("train", TEXT.encode())], 300, tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.add_special_tokens(["<|turn|>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    found = set()
    for end in ("<|turn|>", "<|endoftext|>"):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": end}))
        found.add(fingerprint(build_tokenizer(str(tmp_path))))
    assert len(found) == 2


def test_a_tokenizer_without_an_end_of_text_is_refused(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", stories(50))
    prepare(find_corpus(str(file)), 300, tmp_path / "out", workers=1)
    folder = tmp_path / "out" / "tokenizer"
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(ConfigError, match="has no end-of-text token: name it as eos_token"):
        prepare(find_corpus(str(file)), str(folder), tmp_path / "other", workers=1)
    (folder / "tokenizer.json").write_text(json.dumps({"not": "a tokenizer"}))
    with pytest.raises(ConfigError, match=r"the tokenizer in .* cannot be read"):
        prepare(find_corpus(str(file)), str(folder), tmp_path / "other", workers=1)
