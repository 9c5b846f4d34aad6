"""Tokenizers as torchtitan components."""

from dataclasses import dataclass
from pathlib import Path

from torchtitan.components.tokenizer import BaseTokenizer, HuggingFaceTokenizer

from mixit_titan.errors import ConfigError


class ByteTokenizer(BaseTokenizer):
    """Token b is byte b of the UTF-8 text; 256 ends a document."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config: Config | None = None, *, tokenizer_path: str = "") -> None:
        super().__init__()
        self.eos_id = 256

    def encode(self, text: str, *, add_bos: bool = False, add_eos: bool = False) -> list[int]:
        return list(text.encode()) + ([self.eos_id] if add_eos else [])

    def decode(self, ids: list[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")

    def get_vocab_size(self) -> int:
        return 257


def tokenizer_config(name: str) -> BaseTokenizer.Config:
    """`bytes`, or a folder with a Hugging Face tokenizer.json."""
    if name == "bytes":
        return ByteTokenizer.Config()
    if (Path(name) / "tokenizer.json").is_file():
        return HuggingFaceTokenizer.Config()
    raise ConfigError(
        f"data.tokenizer = {name!r} is neither 'bytes' nor a folder with a tokenizer.json"
    )
