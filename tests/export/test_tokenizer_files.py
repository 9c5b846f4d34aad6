"""Tokenizers in another format give the same ids."""

import base64
import inspect
import random
from pathlib import Path

import pytest
import tiktoken
from tokenizers import Tokenizer

from mixit_titan.data.byte_level import from_ranks
from mixit_titan.data.tokenizers import build_tokenizer
from mixit_titan.export.tokenizer_files import from_bytes
from tests.data.test_tokenizers import write_ranks
from tests.export.reader import TEXT

R50K = Path(__file__).parents[2] / ".." / "shared" / "data" / "tokenizers" / "r50k_base.tiktoken"
TEXTS = [TEXT, inspect.getsource(random), "", " ", "\n\n  \n a  \n", "aaaaaaaaaaa", "the then them"]


def learned(texts: str, size: int) -> dict[bytes, int]:
    """Ranks by counting pairs, the textbook way."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    words = [[bytes([byte]) for byte in word.encode()] for word in texts.split(" ")]
    while len(ranks) < size:
        counts: dict[tuple[bytes, bytes], int] = {}
        for word in words:
            for pair in zip(word, word[1:], strict=False):  # noqa: RUF007
                counts[pair] = counts.get(pair, 0) + 1
        first, second = max(counts, key=lambda pair: (counts[pair], pair))
        ranks[first + second] = len(ranks)
        for word in words:
            at = 0
            while at < len(word) - 1:
                if (word[at], word[at + 1]) == (first, second):
                    word[at : at + 2] = [first + second]
                at += 1
    return ranks


def check(ours: Tokenizer, encoding: tiktoken.Encoding) -> None:
    ours.encode_special_tokens = True
    for text in TEXTS:
        ids = ours.encode(text, add_special_tokens=False).ids
        assert ids == encoding.encode_ordinary(text)
        assert ours.decode(ids) == text


def test_ranks(tmp_path: Path) -> None:
    ranks = learned(inspect.getsource(random)[:6000], 500)
    lines = [b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks.items()]
    (tmp_path / "own.tiktoken").write_bytes(b"".join(lines))
    tokenizer = build_tokenizer(str(tmp_path / "own.tiktoken"))
    ours = from_ranks(tokenizer.encoding)
    check(ours, tokenizer.encoding)
    assert len(ours.encode(TEXTS[1]).ids) < 0.7 * len(TEXTS[1])
    assert ours.token_to_id("<|endoftext|>") == tokenizer.eos_id == 500


def test_an_end_of_text_beyond_a_gap(tmp_path: Path) -> None:
    write_ranks(tmp_path / "gpt4.tiktoken", 100256)
    tokenizer = build_tokenizer(str(tmp_path / "gpt4.tiktoken"))
    ours = from_ranks(tokenizer.encoding)
    check(ours, tokenizer.encoding)
    assert ours.token_to_id("<|endoftext|>") == tokenizer.eos_id == 100257


@pytest.mark.skipif(not R50K.exists(), reason="no r50k_base.tiktoken beside the project")
def test_gpt2_ranks() -> None:
    encoding = build_tokenizer(str(R50K)).encoding
    check(from_ranks(encoding), encoding)


def test_bytes() -> None:
    ours = from_bytes(256)
    ours.encode_special_tokens = True
    for text in TEXTS:
        ids = ours.encode(text, add_special_tokens=False).ids
        assert ids == list(text.encode())
        assert ours.decode(ids) == text
