"""The loss of a bigram table, compared with one that is counted in plain Python."""

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest

from mixit_titan.data.bigram import bigram_loss
from mixit_titan.data.prepare import prepare
from mixit_titan.data.sources import find_corpus

END = 256
TEXTS = ["abab", "the cat sat", "a cat, a hat", "hat"]


def prepared(folder: Path) -> Path:
    """The shards of three training documents and one for validation."""
    records = [f'{{"text": "{text}"}}\n' for text in TEXTS]
    (folder / "texts.jsonl").write_text("".join(records))
    corpus = find_corpus(str(folder / "texts.jsonl"), train_documents=3, validation_documents=1)
    prepare(corpus, "bytes", folder / "data", workers=1)
    return folder / "data"


def by_hand(asked: list[tuple[int, int]]) -> float:
    """The loss of these pairs of tokens."""
    documents = [[*text.encode(), END] for text in TEXTS[:3]]
    seen = Counter(pair for document in documents for pair in pairwise(document))
    first = Counter(pair[0] for pair in seen.elements())
    second = Counter(pair[1] for pair in seen.elements())
    share = [(second[token] + 1) / (second.total() + END + 1) for token in range(END + 1)]
    return -fmean(math.log((seen[a, b] + share[b]) / (first[a] + 1)) for a, b in asked)


ASKED = [*pairwise([*TEXTS[3].encode(), END])]


def test_it_is_the_table_of_the_training_documents(tmp_path: Path) -> None:
    found = bigram_loss(str(prepared(tmp_path)), seq_len=3, rows=100)
    assert found == pytest.approx(by_hand(ASKED), rel=1e-12)


def test_only_the_rows_that_runs_validate_on_are_asked(tmp_path: Path) -> None:
    """`hat` and its end are two rows, of three labels in all; the order decides which is first."""
    found = bigram_loss(str(prepared(tmp_path)), seq_len=2, rows=1)
    assert found in [pytest.approx(by_hand(row)) for row in (ASKED[:2], ASKED[2:])]


def test_there_is_none_without_the_text_or_with_a_large_vocabulary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bigram_loss(str(tmp_path / "gone"), seq_len=2, rows=1) is None
    folder = prepared(tmp_path)
    monkeypatch.setattr("mixit_titan.data.bigram._LARGEST", 256)
    assert bigram_loss(str(folder), seq_len=2, rows=1) is None
