"""gigatoken gives the ids of the other libraries, or the preparation stops and says so."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, normalizers

from mixit_titan.data import fast_encoder, workers
from mixit_titan.data.bpe import train_tokenizer
from mixit_titan.data.encoding import Encoder
from mixit_titan.data.fast_encoder import EncodersDiffer, FastEncoder, choose_encoder
from mixit_titan.data.prepare import prepare
from mixit_titan.data.sources import find_corpus
from mixit_titan.data.splits import Document
from mixit_titan.data.tokenizers import ByteTokenizer, build_tokenizer
from mixit_titan.errors import ConfigError
from tests.data.fuzz_encoders import RANKS, SPECIAL, differences, fast, texts, words
from tests.data.test_tokenizers import R50K, SHARED, write_ranks
from tests.data.tokens import content, stories

pytest.importorskip("gigatoken")
MADE = stories(300)
NEW = "a\U00010940b"  # a letter of Unicode 17


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> FastEncoder:
    return fast("gpt2", tmp_path_factory.mktemp("ranks"))


@pytest.fixture
def ranks(tmp_path: Path) -> str:
    write_ranks(tmp_path / "few.tiktoken", 2000)
    return str(tmp_path / "few.tiktoken")


@pytest.fixture(scope="module", params=RANKS)
def encoder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> FastEncoder:
    return fast(request.param, tmp_path_factory.mktemp("ranks"))


@pytest.fixture
def by_gigatoken_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder compares nothing by itself."""
    monkeypatch.setattr(fast_encoder, "_COMPARED", 0)
    monkeypatch.setattr(fast_encoder, "_SHARE", 2**60)


@pytest.mark.parametrize("cases", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_random_texts_have_the_same_ids(
    encoder: FastEncoder, by_gigatoken_alone: None, cases: int
) -> None:
    assert differences(encoder, texts(cases, seed=1)) == []


@pytest.mark.parametrize(  # the first is gigatoken's, the second is left to tiktoken
    "size", [fast_encoder._LONG - 4, pytest.param(2**20, marks=pytest.mark.slow)]
)
def test_words_of_a_megabyte_have_the_same_ids(
    encoder: FastEncoder, by_gigatoken_alone: None, size: int
) -> None:
    assert differences(encoder, words(size, seed=2), at_once=1) == []


def test_what_looks_like_a_special_token_is_text(gpt2: FastEncoder) -> None:
    for text in SPECIAL:
        tokens, _ = gpt2.encode([text.encode()])
        assert gpt2.exact.tokenizer.eos_id not in tokens[:-1]
        assert differences(gpt2, iter([text])) == []


def test_long_texts_and_new_characters_are_left_to_tiktoken(
    gpt2: FastEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ["first", NEW, "x" * 2**20, "", "one" + " " * 1_500_000 + "two", "last", NEW]
    encoded = [text.encode() for text in made]
    tokens, lengths = gpt2.encode(encoded)
    exact_tokens, exact_lengths = gpt2.exact.encode(encoded)
    assert tokens.tolist() == exact_tokens.tolist() and lengths.tolist() == exact_lengths.tolist()
    monkeypatch.setattr(fast_encoder, "_LEADS", ())
    monkeypatch.setattr(fast_encoder, "_SHARE", 1)
    with pytest.raises(EncodersDiffer) as differ:
        gpt2.encode(encoded[:2])
    assert differ.value.document == 1


def test_every_new_character_is_left_to_tiktoken() -> None:
    characters = [chr(number) for number in range(0x110000) if number not in range(0xD800, 0xE000)]
    new = [c for c in characters if fast_encoder._NEW_CHARACTERS.match(c)]
    assert len(new) > 4657  # those that differ, and what lies between them
    assert all(fast_encoder._is_left_to_exact(f"naïve {c}".encode()) for c in new)
    assert not fast_encoder._is_left_to_exact("naïve 数学 한국어 ไทย được हिन्दी 🙂".encode())


def test_it_is_built_anew_when_it_holds_much(
    gpt2: FastEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    monkeypatch.setattr(fast_encoder, "_HELD", -(2**60))
    encoder = FastEncoder(gpt2.exact, lambda: built.append(0) or gpt2.build())
    for _ in range(3):
        assert differences(encoder, iter(MADE)) == []
    assert len(built) > 3


class Wrong:
    """A gigatoken that errs in one text."""

    def __init__(self, right: object, text: bytes) -> None:
        self.right, self.text = right, text

    def encode_batch(self, texts: Sequence[bytes], *, parallel: bool) -> object:
        changed = [text[::-1] if text == self.text else text for text in texts]
        return self.right.encode_batch(changed, parallel=parallel)


@pytest.mark.parametrize("workers_used", [1, 2])
def test_a_difference_stops_with_its_document_and_tiktoken_resumes(
    corpus: str, ranks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers_used: int
) -> None:
    build = fast_encoder._builder
    train = [text for split, text in find_corpus(corpus).documents() if split == "train"]
    number = train.index(train[200]) + 1

    def wrong_builder(tokenizer: object) -> object:
        return lambda: Wrong(build(tokenizer)(), train[number - 1])

    monkeypatch.setattr(fast_encoder, "_builder", wrong_builder)
    monkeypatch.setattr(fast_encoder, "_COMPARED", 400)
    monkeypatch.setattr(fast_encoder, "_SHARE", 1)
    arguments = {"workers": workers_used, "shard_tokens": 1000}
    with pytest.raises(ConfigError, match=rf"document {number} of train .*--encoder tiktoken"):
        prepare(find_corpus(corpus), ranks, tmp_path / "out", **arguments)
    assert list((tmp_path / "out").glob("train-*.tokens"))  # what was found before it stays
    prepare(find_corpus(corpus), ranks, tmp_path / "out", encoder="tiktoken", **arguments)
    prepare(find_corpus(corpus), ranks, tmp_path / "alone", encoder="tiktoken", **arguments)
    assert content(tmp_path / "out") == content(tmp_path / "alone")


def test_the_encoder_changes_no_byte(corpus: str, ranks: str, tmp_path: Path) -> None:
    said: list[str] = []
    for name in ("auto", "gigatoken", "tiktoken"):
        arguments = {"encoder": name, "workers": 2, "shard_tokens": 999}
        prepare(find_corpus(corpus), ranks, tmp_path / name, say=said.append, **arguments)
    assert content(tmp_path / "auto") == content(tmp_path / "tiktoken")
    assert content(tmp_path / "gigatoken") == content(tmp_path / "tiktoken")
    compared = "Encoding with gigatoken, compared to tiktoken throughout"
    assert said == [compared, compared, "Encoding with tiktoken"]


def test_without_gigatoken_the_other_library_encodes(
    ranks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, dtype = build_tokenizer(ranks), np.dtype("<u2")
    monkeypatch.setattr(fast_encoder.importlib.util, "find_spec", lambda name: None)
    encoder, said = choose_encoder(tokenizer, dtype, "auto")
    assert isinstance(encoder, Encoder)
    assert said == "Encoding with tiktoken: gigatoken, which is faster, is not installed"
    with pytest.raises(ConfigError, match="gigatoken, which is faster, is not installed: leave"):
        choose_encoder(tokenizer, dtype, "gigatoken")
    with pytest.raises(
        ConfigError, match="--encoder tokenizers does not support this tokenizer, whose"
    ):
        choose_encoder(tokenizer, dtype, "tokenizers")
    for name in ("tiktoken", "gigatoken"):
        with pytest.raises(ConfigError, match="whose encoder is bytes"):
            choose_encoder(ByteTokenizer(), dtype, name)


def test_byte_level_tokenizers_of_hugging_face(tmp_path: Path) -> None:
    train_tokenizer((Document("train", text.encode()) for text in MADE), 600, tmp_path)
    encoder, _ = choose_encoder(build_tokenizer(str(tmp_path)), np.dtype("<u2"), "gigatoken")
    made = [text.encode() for text in [*MADE, *texts(300, seed=2)]]
    for found, exact in zip(encoder.encode(made), encoder.exact.encode(made), strict=True):
        assert found.tolist() == exact.tolist()


@pytest.mark.parametrize("change", ["normalizer", "added token"])
def test_other_tokenizers_are_left_to_tokenizers(tmp_path: Path, change: str) -> None:
    train_tokenizer((Document("train", text.encode()) for text in MADE), 300, tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    if change == "normalizer":
        tokenizer.normalizer = normalizers.NFC()
    else:
        tokenizer.add_tokens(["Story"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    encoder, said = choose_encoder(build_tokenizer(str(tmp_path)), np.dtype("<u2"), "auto")
    assert isinstance(encoder, Encoder) and said.startswith("Encoding with tokenizers: gigatoken")


@pytest.mark.skipif(not R50K.exists(), reason="no r50k_base.tiktoken beside the project")
def test_real_text_has_the_same_ids() -> None:
    encoder, _ = choose_encoder(build_tokenizer(str(R50K)), np.dtype("<u2"), "gigatoken")
    lines = (SHARED / "fineweb_edu" / "fineweb_edu_sample.jsonl").open(encoding="utf-8")
    made = [json.loads(line)["text"].encode() for line in lines]
    made += [
        text for _, text in find_corpus("wikitext-2", local=str(SHARED / "wikitext2")).documents()
    ]
    result = workers._result(workers.Texts("train", made), encoder)[0]
    tokens, lengths = encoder.exact.encode(made)
    assert np.array_equal(result.tokens, tokens) and np.array_equal(result.lengths, lengths)
