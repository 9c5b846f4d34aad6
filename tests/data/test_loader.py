from pathlib import Path

import numpy as np
import pytest
import torch
from torchtitan.components.loss import IGNORE_INDEX

from mixit_titan.data.corpus import documents
from mixit_titan.data.loader import RowLoader
from mixit_titan.data.tokenizers import ByteTokenizer
from mixit_titan.errors import ConfigError

BYTES = ByteTokenizer()


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    for n in range(40):
        words = " ".join(str(n * 1000 + k) for k in range(20 + n))
        (tmp_path / f"{n:02}.txt").write_text(words, encoding="utf-8")
    return str(tmp_path)


def loader(path: str, rank: int, ranks: int, batch: int, **settings: object) -> RowLoader:
    config = RowLoader.Config(dataset_path=path, **settings)
    return RowLoader(
        config,
        dp_rank=rank,
        dp_world_size=ranks,
        tokenizer=BYTES,
        seq_len=16,
        local_batch_size=batch,
    )


def global_batches(path: str, ranks: int, batch: int, count: int, start: int = 0) -> list[set]:
    """Sets of rows: `count` global batches of 12 rows, put together from all ranks."""
    loaders = [loader(path, rank, ranks, batch) for rank in range(ranks)]
    for one in loaders:
        one.load_state_dict({"consumed": start})
    iterators = [iter(one) for one in loaders]
    batches = []
    for _ in range(count):
        rows = [
            tuple(row.tolist())
            for _ in range(12 // (ranks * batch))
            for iterator in iterators
            for row in next(iterator)[0]["input"]
        ]
        assert len(rows) == 12
        batches.append(set(rows))
    return batches


def test_global_batches_do_not_depend_on_the_ranks(corpus: str) -> None:
    expected = global_batches(corpus, 1, 12, 30)  # more than an epoch
    assert len(set().union(*expected)) > 250
    for ranks, batch in ((1, 3), (2, 6), (3, 4), (3, 2), (4, 3), (12, 1)):
        assert global_batches(corpus, ranks, batch, 30) == expected


def test_a_resume_on_another_number_of_ranks_goes_on_exactly(corpus: str) -> None:
    expected = global_batches(corpus, 1, 12, 30)
    assert global_batches(corpus, 3, 2, 20, start=10 * 12) == expected[10:]


def test_an_epoch_has_every_row_once_and_the_next_another_order(corpus: str) -> None:
    one = loader(corpus, 0, 1, 1)
    iterator = iter(one)
    epochs = [
        [tuple(next(iterator)[0]["input"][0].tolist()) for _ in range(one.rows)] for _ in "12"
    ]
    text = np.concatenate([np.array([*BYTES.encode(d), 256]) for d in documents(corpus, "train")])
    rows = [tuple(text[i * 16 : i * 16 + 16].tolist()) for i in range((len(text) - 1) // 16)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(rows)
    assert epochs[0] != epochs[1] and epochs[0] != rows


def test_labels_are_the_next_tokens(corpus: str) -> None:
    batch, labels = next(iter(loader(corpus, 0, 1, 4, positions=True)))
    assert torch.equal(batch["input"][:, 1:], labels[:, :-1])
    assert torch.equal(batch["positions"][2], torch.arange(16))


def test_validation_ends_on_all_ranks_at_once_and_counts_each_row_once(corpus: str) -> None:
    one = loader(corpus, 0, 1, 1, split="validation", infinite=False)
    expected = sorted(tuple(labels[0].tolist()) for _, labels in one)
    per_rank = [
        list(loader(corpus, rank, 3, 2, split="validation", infinite=False)) for rank in range(3)
    ]
    assert len({len(batches) for batches in per_rank}) == 1
    labels = [tuple(r.tolist()) for batches in per_rank for _, rows in batches for r in rows]
    assert sorted(row for row in labels if IGNORE_INDEX not in row) == expected


def test_training_and_validation_share_no_document(corpus: str) -> None:
    train, held_out = (set(documents(corpus, split)) for split in ("train", "validation"))
    assert len(train) + len(held_out) == 40 and not train & held_out


def test_a_corpus_shorter_than_a_row_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "short.txt"
    file.write_text("short")
    with pytest.raises(ConfigError, match="fewer than one row"):
        loader(str(file), 0, 1, 1)


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "latin.txt"
    file.write_bytes(b"caf\xe9" * 100)
    with pytest.raises(ConfigError, match=r"latin.txt is not UTF-8 text \(byte 3\)"):
        loader(str(file), 0, 1, 1)
