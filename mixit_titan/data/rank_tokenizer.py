"""Byte-pair encoding from a file of ranks in tiktoken's format: that of GPT-2, GPT-4, Llama-3, or
one of the user's own."""

import binascii
from dataclasses import dataclass
from pathlib import Path

import tiktoken
from torchtitan.components.tokenizer import BaseTokenizer

from mixit_titan.errors import ConfigError
from mixit_titan.reading import regular

# How GPT-2, GPT-4, Llama-3 and GPT-4o cut text into pieces before the merges.
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
GPT4 = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# The same pieces, faster: everything without lookahead is one group, which tiktoken 0.14 searches
# at once (benchmarks/prepare.py). And readable to Hugging Face's tokenizers, for an export: there
# `{1,3}+` would have another meaning.
_FAST = {
    GPT2: r"(?:'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+)|\s++$|\s+(?!\S)|\s",
    GPT4: (
        r"(?:'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    ),
    LLAMA3: (
        r"(?:(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)|\s++$|\s+(?!\S)|\s"
    ),
}
# A file of ranks contains neither the pattern nor the end-of-text id. By the number of ranks:
# p50k_base, cl100k_base and o200k_base.
_PUBLISHED = {50280: (GPT2, 50256), 100256: (GPT4, 100257), 199998: (GPT4O, 199999)}
_LIKE_GPT2 = 100_000  # with fewer ranks, text is cut as by GPT-2
_LONGEST = 2**16  # bytes of a line
_LLAMA3_RANKS, _LLAMA3_SPECIALS = 128000, 256


class RankTokenizer(BaseTokenizer):
    """Byte-pair encoding from a file of ranks in tiktoken's format: `*.tiktoken`, or Llama-3's
    `tokenizer.model`, with its 256 special tokens."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        """The path of the file."""

        path: str

    def __init__(self, config: Config, *, tokenizer_path: str = "") -> None:
        super().__init__()
        ranks = _read_ranks(config.path)
        if len(ranks) == _LLAMA3_RANKS:
            specials, self.pattern = _llama3_specials(), LLAMA3
            self.eos_id = specials["<|end_of_text|>"]
        else:
            self.pattern, self.eos_id = _pattern(ranks, config.path)
            specials = {"<|endoftext|>": self.eos_id}
        self.encoding = tiktoken.Encoding(
            name=Path(config.path).name,
            pat_str=_FAST.get(self.pattern, self.pattern),
            mergeable_ranks=ranks,
            special_tokens=specials,
        )

    def encode(self, text: str, *, add_bos: bool = False, add_eos: bool = False) -> list[int]:
        """The ids of a text, in which special tokens are plain text."""
        return self.encoding.encode_ordinary(text) + ([self.eos_id] if add_eos else [])

    def decode(self, ids: list[int]) -> str:
        """The text of ids."""
        return self.encoding.decode(ids)

    def get_vocab_size(self) -> int:
        """The number of ids, special tokens included."""
        return self.encoding.n_vocab


def _read_ranks(path: str) -> dict[bytes, int]:
    ranks, number = {}, 0
    with open(path, "rb", opener=regular) as file:
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST), b""), 1):
            try:
                token, rank = line.split()
                ranks[binascii.a2b_base64(token, strict_mode=True)] = int(rank)
            except ValueError:
                raise ConfigError(
                    f"{path} is not a file of ranks in tiktoken's format: line {number} is not "
                    "a token in base64 and its rank"
                ) from None
    if not len(ranks) == len(set(ranks.values())) == number:
        raise ConfigError(f"{path} is damaged or truncated, a rank occurs twice: download it again")
    if len(ranks) < 256:
        raise ConfigError(f"{path} has {len(ranks)} ranks: a byte-level tokenizer has at least 256")
    return ranks


def _pattern(ranks: dict[bytes, int], path: str) -> tuple[str, int]:
    """The pattern that cuts text, and the end-of-text id."""
    if len(ranks) in _PUBLISHED:
        return _PUBLISHED[len(ranks)]
    if len(ranks) >= _LIKE_GPT2:
        raise ConfigError(
            f"{path} has {len(ranks):,} ranks, and it is not known how its tokenizer cuts text: "
            "name a folder with its tokenizer.json instead"
        )
    return GPT2, max(ranks.values()) + 1


def _llama3_specials() -> dict[str, int]:
    named = {0: "begin_of_text", 1: "end_of_text", 6: "start_header_id", 7: "end_header_id"}
    named[9] = "eot_id"
    names, reserved = [], 0
    for index in range(_LLAMA3_SPECIALS):
        if index in named:
            names.append(f"<|{named[index]}|>")
        else:
            names.append(f"<|reserved_special_token_{reserved}|>")
            reserved += 1
    return {name: _LLAMA3_RANKS + index for index, name in enumerate(names)}
