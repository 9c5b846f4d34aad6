"""Texts to ids by the library that defines them."""

from pathlib import Path

import numpy as np
import pytest

from mixit_titan.data.encoding import Encoder
from mixit_titan.data.tokenizers import build_tokenizer
from tests.data.test_tokenizers import write_ranks


def test_a_million_spaces_in_a_row(tmp_path: Path) -> None:
    """tiktoken gives up on them."""
    write_ranks(tmp_path / "a.tiktoken", 300)
    tokenizer = build_tokenizer(str(tmp_path / "a.tiktoken"))
    text = "one" + " " * 1_500_000 + "two"
    with pytest.raises(ValueError, match="stack size"):
        tokenizer.encoding.encode_to_numpy(text)
    ids = Encoder(tokenizer, np.dtype("<u2")).ids(text)
    assert tokenizer.decode(ids.tolist()) == text
