"""The bytes of a text are those of its tokens."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from mixit_titan.data.bpe import train_tokenizer
from mixit_titan.data.shards import TokenSplit, open_split
from mixit_titan.data.splits import Document
from mixit_titan.data.token_bytes import token_bytes
from mixit_titan.data.tokenizers import build_tokenizer
from tests.shards import write_shards

from .test_tokenizers import write_ranks

TEXT = "naïve 数学 🙂  two  spaces\r\n\ttab's 12345, and a text to learn pairs from: naïve pairs"


@pytest.fixture
def split(tmp_path: Path) -> TokenSplit:
    folder = write_shards(tmp_path / "data", train=[[1, 2, 3], [4]], validation=[[5]])
    return open_split(folder, "train")


def tokenizer_name(kind: str, folder: Path) -> str:
    if kind == "ranks":
        write_ranks(folder / "some.tiktoken", 5000)
        return str(folder / "some.tiktoken")
    if kind == "trained":
        train_tokenizer([Document("train", TEXT.encode())], 300, folder / "trained")
        return str(folder / "trained")
    return kind


@pytest.mark.parametrize("kind", ["bytes", "ranks", "trained"])
def test_the_bytes_of_the_tokens_add_up(kind: str, tmp_path: Path, split: TokenSplit) -> None:
    tokenizer = build_tokenizer(tokenizer_name(kind, tmp_path))
    sizes = token_bytes(tokenizer, split)
    ids = tokenizer.encode(TEXT, add_bos=False, add_eos=True)
    assert sizes[ids].sum() == len(TEXT.encode())
    assert sizes[tokenizer.eos_id] == 0


def test_other_tokenizers_take_the_average_and_say_so(
    tmp_path: Path, split: TokenSplit, caplog: pytest.LogCaptureFixture
) -> None:
    words = Tokenizer(models.WordLevel(unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.train_from_iterator([TEXT] * 9, trainers.WordLevelTrainer(special_tokens=["?", "."]))
    words.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "."}))
    split.eos_id = 1
    with caplog.at_level(logging.WARNING):
        sizes = token_bytes(build_tokenizer(str(tmp_path)), split)
    assert "bits per byte are computed from the train split's average of 1.000" in caplog.text
    assert sizes[1] == 0 and np.all(np.delete(sizes, 1) == 1)
