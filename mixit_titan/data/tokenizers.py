"""Tokenizers as torchtitan components: bytes, numbers, tiktoken's rank files, Hugging Face
folders."""

import functools
import hashlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from torchtitan.components.tokenizer import BaseTokenizer, HuggingFaceTokenizer

from mixit_titan.data.rank_tokenizer import RankTokenizer
from mixit_titan.errors import ConfigError
from mixit_titan.files import replace_file
from mixit_titan.reading import WrongFile, check_kinds, set_aside

_SAVED = "tokenizer"  # in a folder of shards or of a run
_READ = (".json", ".txt", ".jinja", ".model", ".tiktoken")
_LARGEST = 2**28  # bytes of each of these files
_NUMBERS = re.compile(r"numbers:([1-9]\d{0,8})")
_HF_FILES = ("tokenizer_config.json", "chat_template.jinja", "tokenizer.json")


class ByteTokenizer(BaseTokenizer):
    """Token b is byte b of the UTF-8 text; 256 ends a document."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        """There is nothing to configure."""

        pass

    def __init__(self, config: Config | None = None, *, tokenizer_path: str = "") -> None:
        super().__init__()
        self.eos_id = 256

    def encode(self, text: str, *, add_bos: bool = False, add_eos: bool = False) -> list[int]:
        """The bytes of a text."""
        return list(text.encode()) + ([self.eos_id] if add_eos else [])

    def decode(self, ids: list[int]) -> str:
        """The text of ids; invalid UTF-8 becomes the replacement character."""
        return bytes(i for i in ids if i < 256).decode(errors="replace")

    def get_vocab_size(self) -> int:
        """257: all bytes, and the end of a document."""
        return 257


_LONGEST = 20  # digits; no token has as many


class NumberTokenizer(BaseTokenizer):
    """Token 17 is the word `17`, in a vocabulary of any size; the last token ends a document. It is
    for synthetic data, which are not text."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        """The size of the vocabulary."""

        vocab: int

    def __init__(self, config: Config, *, tokenizer_path: str = "") -> None:
        super().__init__()
        self.vocab = config.vocab
        self.eos_id = config.vocab - 1

    def encode(self, text: str, *, add_bos: bool = False, add_eos: bool = False) -> list[int]:
        """The numbers in a text that are below the size of the vocabulary."""
        words = [word for word in text.split() if word.isdecimal() and len(word) <= _LONGEST]
        return [id for id in map(int, words) if id < self.vocab] + (
            [self.eos_id] if add_eos else []
        )

    def decode(self, ids: list[int]) -> str:
        """The ids as words."""
        return " ".join(map(str, ids))

    def get_vocab_size(self) -> int:
        """The size of the vocabulary."""
        return self.vocab


def tokenizer_config(name: str) -> BaseTokenizer.Config:
    """The config of a tokenizer by name: `bytes`, `numbers:SIZE`, a file of ranks, or a folder with
    a Hugging Face tokenizer.json."""
    path = Path(name)
    if name == "bytes":
        return ByteTokenizer.Config()
    if (numbers := _NUMBERS.fullmatch(name)) is not None:
        return NumberTokenizer.Config(vocab=int(numbers[1]))
    if (path / "tokenizer.json").is_file():
        return HuggingFaceTokenizer.Config()
    if path.suffix == ".tiktoken" or path.name == "tokenizer.model":
        if path.is_file():
            return RankTokenizer.Config(path=name)
        if not path.exists():
            raise ConfigError(f"the tokenizer {name!r} does not exist: name its file")
    raise ConfigError(
        f"the tokenizer {name!r} is neither 'bytes', nor a .tiktoken file, nor Llama-3's "
        "tokenizer.model, nor a folder with a tokenizer.json"
    )


def build_tokenizer(name: str) -> BaseTokenizer:
    """The tokenizer with this name; raises a ConfigError if it cannot be read."""
    config = tokenizer_config(name)
    if not has_no_files(name):
        _check_files(Path(name))
    try:
        tokenizer = config.build(tokenizer_path=name)
    except (ConfigError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the tokenizers library is not an Exception
        said = " ".join(str(error).split())
        raise ConfigError(f"the tokenizer in {name} cannot be read ({said:.300})") from None
    if isinstance(tokenizer, HuggingFaceTokenizer):  # whose file may ask to truncate and pad texts
        tokenizer.tokenizer.no_truncation()
        tokenizer.tokenizer.no_padding()
    return tokenizer


def _check_files(path: Path) -> None:
    """Refuse files that torchtitan, which reads what it finds in a folder, would block on."""
    for file in path.iterdir() if path.is_dir() else [path]:
        if file.suffix in _READ:
            check_kinds(file.parent, files=(file.name,))
            if file.exists() and file.stat().st_size > _LARGEST:
                raise WrongFile(file, f"it is larger than {_LARGEST:,} bytes")


def vocabulary(tokenizer: BaseTokenizer) -> int:
    """One more than the largest id of a tokenizer."""
    if isinstance(tokenizer, HuggingFaceTokenizer):  # whose ids may have gaps
        return max(tokenizer.tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    return tokenizer.get_vocab_size()


def has_no_files(name: str) -> bool:
    """Whether the name alone defines the tokenizer."""
    return name == "bytes" or _NUMBERS.fullmatch(name) is not None


def copy_tokenizer(name: str, folder: Path) -> None:
    """Copy a tokenizer's files beside the tokens that it made; bytes and numbers have none."""
    if has_no_files(name):
        return
    path, target = Path(name), folder / _SAVED
    target.mkdir(exist_ok=True)
    files = [path / file for file in _HF_FILES] if path.is_dir() else [path]
    for file in filter(Path.is_file, files):  # tokenizer.json last, because it completes them
        replace_file(target / file.name, functools.partial(shutil.copyfile, file))


def keep_tokenizer(name: str, folder: Path) -> None:
    """Copy a tokenizer's files into a run's folder, in place of those of another tokenizer."""
    saved = saved_tokenizer(folder)
    if saved is not None and fingerprint(build_tokenizer(saved)) != fingerprint(
        build_tokenizer(name)
    ):
        set_aside(folder / _SAVED)  # it may be the user's own
    copy_tokenizer(name, folder)


def saved_tokenizer(folder: Path) -> str | None:
    """The name of the tokenizer whose files are in a folder of shards or of a run, or None."""
    saved = folder / _SAVED
    if (saved / _HF_FILES[-1]).is_file():
        return str(saved)
    ranks = [*saved.glob("*.tiktoken"), *saved.glob("tokenizer.model")]
    return str(ranks[0]) if ranks else None


def fingerprint(tokenizer: BaseTokenizer) -> str:
    """A hash that is equal for two tokenizers only if they give the same ids to the same text and
    its end."""
    digest = hashlib.sha256(type(tokenizer).__name__.encode())
    if isinstance(tokenizer, RankTokenizer):
        digest.update(tokenizer.pattern.encode())
        vocabulary = tokenizer.encoding._mergeable_ranks | tokenizer.encoding._special_tokens
        words = {
            rank: token if isinstance(token, bytes) else token.encode()
            for token, rank in vocabulary.items()
        }
        digest.update(b"".join(b"%d %d %b" % (r, len(words[r]), words[r]) for r in sorted(words)))
    elif isinstance(tokenizer, NumberTokenizer):
        digest.update(b"%d" % tokenizer.vocab)
    elif isinstance(tokenizer, HuggingFaceTokenizer):
        digest.update(tokenizer.tokenizer.to_str().encode() + b" %a" % tokenizer.eos_id)
    return digest.hexdigest()[:16]
