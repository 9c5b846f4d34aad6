"""A run's tokenizer as Hugging Face's two files: its own ones, or the same tokens said anew."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from torchtitan.components.tokenizer import HuggingFaceTokenizer

from mixit_titan.data.rank_tokenizer import RankTokenizer
from mixit_titan.files import json_text
from mixit_titan.reading import read_json
from mixit_titan.runtime.trained import Trained

_BYTES_END = "<|endoftext|>"


def write_tokenizer(trained: Trained, folder: Path) -> None:
    """tokenizer.json and tokenizer_config.json, which give a text the ids of the run."""
    tokenizer = trained.tokenizer
    settings: dict[str, Any] = {}
    if isinstance(tokenizer, HuggingFaceTokenizer):
        source = Path(trained.tokenizer_name)
        for file in filter(Path.is_file, source.glob("[!.]*")):  # not what a kill left of a copy
            shutil.copyfile(file, folder / file.name)
        if (folder / "tokenizer_config.json").exists():
            settings = read_json(folder / "tokenizer_config.json", dict)
    elif isinstance(tokenizer, RankTokenizer):
        from_ranks(tokenizer.encoding).save(str(folder / "tokenizer.json"))
        settings = {"eos_token": tokenizer.encoding.decode([tokenizer.eos_id])}
    else:
        from_bytes(tokenizer.eos_id).save(str(folder / "tokenizer.json"))
        settings = {"eos_token": _BYTES_END}
    # Else transformers would build the tokenizer of the original Llama around the vocabulary.
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"} | settings
    (folder / "tokenizer_config.json").write_text(json_text(settings, indent=2) + "\n")


def from_bytes(end: int) -> Tokenizer:
    letters = _letters()
    tokenizer = Tokenizer(models.BPE({letters[byte]: byte for byte in range(256)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    assert tokenizer.add_special_tokens([_BYTES_END]) == 1
    assert tokenizer.token_to_id(_BYTES_END) == end
    return tokenizer


def from_ranks(encoding: tiktoken.Encoding) -> Tokenizer:
    """tiktoken joins the pair whose union has the lowest rank. A list of pairs in the order of
    their unions says the same: each token's last pair, and by it all before."""
    letters, ranks = _letters(), encoding._mergeable_ranks

    def word(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    pairs = [_last_pair(token, ranks) for token in sorted(ranks, key=ranks.get) if len(token) > 1]
    merges = [(word(pair[0]), word(pair[1])) for pair in pairs if pair is not None]
    specials = encoding._special_tokens
    # Special tokens too: else they would get the next ids, and some tokenizers leave a gap.
    vocabulary = {word(token): rank for token, rank in ranks.items()} | specials
    # A piece that is a token is one: also where no chain of pairs leads to it.
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(encoding._pat_str), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in specials])
    assert all(tokenizer.token_to_id(name) == rank for name, rank in specials.items())
    return tokenizer


def _last_pair(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes] | None:
    """The two parts that are joined last, when only lower ranks have been joined before."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        joined = [ranks.get(a + b, ranks[token]) for a, b in itertools.pairwise(parts)]
        lowest = min(range(len(joined)), key=joined.__getitem__)
        if joined[lowest] >= ranks[token]:
            return None
        parts[lowest : lowest + 2] = [parts[lowest] + parts[lowest + 1]]
    return parts[0], parts[1]


def _letters() -> list[str]:
    """How byte-level tokenizers write each byte: as itself where it is visible in Latin-1, else as
    one of the characters from 256 on."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    return [chr(byte if byte in visible else next(hidden)) for byte in range(256)]
