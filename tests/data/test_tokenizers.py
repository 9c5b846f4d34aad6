import base64
import itertools
import random
from pathlib import Path

import pytest
import tiktoken
from tiktoken_ext import openai_public

from mixit_titan.data.tokenizers import (
    ByteTokenizer,
    build_tokenizer,
    fingerprint,
    keep_tokenizer,
    saved_tokenizer,
    tokenizer_config,
)
from mixit_titan.errors import ConfigError

SHARED = Path(__file__).parents[2] / ".." / "shared" / "data"
R50K = SHARED / "tokenizers" / "r50k_base.tiktoken"
TEXT = "naïve 数学 🙂  two  spaces\r\n\ttab's 12345"


def write_ranks(path: Path, count: int) -> None:
    """All single bytes, then the first pairs and triples of bytes."""
    tokens = (bytes(t) for n in (1, 2, 3) for t in itertools.product(range(256), repeat=n))
    lines = [
        base64.b64encode(token) + b" %d\n" % rank
        for rank, token in enumerate(itertools.islice(tokens, count))
    ]
    path.write_bytes(b"".join(lines))


def test_another_tokenizer_in_a_run_folder_is_kept_aside(tmp_path: Path) -> None:
    """A folder that a run is given may hold the user's own."""
    run = tmp_path / "run"
    for folder, count in ((tmp_path, 300), (run / "tokenizer", 400)):
        folder.mkdir(parents=True, exist_ok=True)
        write_ranks(folder / "ours.tiktoken", count)
    own = (run / "tokenizer" / "ours.tiktoken").read_bytes()
    keep_tokenizer(str(tmp_path / "ours.tiktoken"), run)
    expected = (tmp_path / "ours.tiktoken").read_bytes()
    assert Path(saved_tokenizer(run)).read_bytes() == expected
    assert (run / "tokenizer.broken" / "ours.tiktoken").read_bytes() == own


def test_bytes_decode_to_their_text() -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.decode(tokenizer.encode(TEXT, add_eos=True)) == TEXT


def test_a_number_that_is_no_token_is_left_out() -> None:
    assert build_tokenizer("numbers:9").encode(f"7 x 9 {5000 * '1'} 08") == [7, 8]


@pytest.mark.skipif(not R50K.exists(), reason="no r50k_base.tiktoken beside the project")
def test_gpt2_ranks() -> None:
    tokenizer = tokenizer_config(str(R50K)).build(tokenizer_path="")
    assert tokenizer.encode("Hello world") == [15496, 995]  # as everybody's GPT-2 does
    assert tokenizer.encode("<|endoftext|>", add_eos=True)[-1] == tokenizer.eos_id == 50256
    assert len(tokenizer.encode("<|endoftext|>")) > 1  # text is text, whatever it says
    assert tokenizer.get_vocab_size() == 50257
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT


def test_llama3_has_its_256_special_tokens(tmp_path: Path) -> None:
    write_ranks(tmp_path / "tokenizer.model", 128000)
    tokenizer = tokenizer_config(str(tmp_path / "tokenizer.model")).build(tokenizer_path="")
    assert tokenizer.get_vocab_size() == 128256
    assert tokenizer.eos_id == 128001
    names = {token: tokenizer.encoding.decode([token]) for token in (128000, 128009, 128255)}
    assert names == {
        128000: "<|begin_of_text|>",
        128009: "<|eot_id|>",
        128255: "<|reserved_special_token_250|>",
    }
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT


# As OpenAI's tiktoken has it for GPT-2 and GPT-4, and Meta's llama-models for Llama-3.
PUBLISHED = {
    # Every pair of bytes is a token, so that the ids show the borders.
    256 + 256**2: r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++"""
    r"""|\s++$|\s+(?!\S)|\s""",
    100256: r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"""
    r"""| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
    128000: r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"""
    r"""| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
}


@pytest.mark.parametrize("ranks", PUBLISHED)
def test_text_is_cut_as_the_published_pattern_says(tmp_path: Path, ranks: int) -> None:
    write_ranks(tmp_path / "tokenizer.model", ranks)
    tokenizer = tokenizer_config(str(tmp_path / "tokenizer.model")).build(tokenizer_path="")
    published = tiktoken.Encoding(
        "published",
        pat_str=PUBLISHED[ranks],
        mergeable_ranks=tokenizer.encoding._mergeable_ranks,
        special_tokens={},
    )
    parts = [*"aé数7 \n\t\u00a0!'", "12", "  ", "\r\n", "'s", "'LL"]
    rng = random.Random(0)
    for _ in range(5000):
        text = "".join(rng.choices(parts, k=12))
        assert tokenizer.encode(text) == published.encode_ordinary(text)


@pytest.mark.parametrize(
    ("name", "ranks"), {"p50k_base": 50280, "cl100k_base": 100256, "o200k_base": 199998}.items()
)
def test_openai_files_are_cut_and_ended_as_tiktoken_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, ranks: int
) -> None:
    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: {})  # not fetched
    published = openai_public.ENCODING_CONSTRUCTORS[name]()
    write_ranks(tmp_path / "a.tiktoken", ranks)
    if name == "p50k_base":  # whose end of text has a rank in the midst
        lines = (tmp_path / "a.tiktoken").read_text().replace(" 50256\n", " 50280\n")
        (tmp_path / "a.tiktoken").write_text(lines)
    tokenizer = tokenizer_config(str(tmp_path / "a.tiktoken")).build(tokenizer_path="")
    assert tokenizer.pattern == published["pat_str"]
    assert tokenizer.eos_id == published["special_tokens"]["<|endoftext|>"]
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT


def test_many_ranks_of_an_unknown_tokenizer_are_refused(tmp_path: Path) -> None:
    write_ranks(tmp_path / "a.tiktoken", 100_001)
    with pytest.raises(ConfigError, match=r"a\.tiktoken has 100,001 ranks.*tokenizer\.json"):
        tokenizer_config(str(tmp_path / "a.tiktoken")).build(tokenizer_path="")


def test_a_fingerprint_stays(tmp_path: Path) -> None:
    """That of an earlier version: shards and checkpoints are refused by another one."""
    write_ranks(tmp_path / "a.tiktoken", 300)
    tokenizer = tokenizer_config(str(tmp_path / "a.tiktoken")).build(tokenizer_path="")
    assert fingerprint(tokenizer) == "08780755974909ac"


def test_a_fingerprint_is_that_of_the_vocabulary(tmp_path: Path) -> None:
    for name, count in {"a": 300, "b": 300, "c": 301}.items():
        write_ranks(tmp_path / f"{name}.tiktoken", count)
    a, b, c = (
        fingerprint(tokenizer_config(str(tmp_path / f"{n}.tiktoken")).build(tokenizer_path=""))
        for n in "abc"
    )
    assert a == b != c != fingerprint(ByteTokenizer())


@pytest.mark.parametrize(
    ("content", "message"),
    {
        b"hello world\n": "line 1 is not a token in base64 and its rank",
        b"IQ== 0\nIg==\n": "line 2 is not a token in base64 and its rank",
        b"IQ== 0\nIg== 1\nIw== 1\n": "is damaged or truncated, a rank occurs twice",
        b"IQ== 0\n": "has 1 ranks: a byte-level tokenizer has at least 256",
    }.items(),
)
def test_a_broken_file_of_ranks(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.tiktoken").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        tokenizer_config(str(tmp_path / "x.tiktoken")).build(tokenizer_path="")
