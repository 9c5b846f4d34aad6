"""A run's tokenizer as Hugging Face's two files: its own files, or equivalent ones with the same
ids."""

import shutil
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torchtitan.components.tokenizer import HuggingFaceTokenizer

from mixit_titan.data.byte_level import from_ranks, letters
from mixit_titan.data.rank_tokenizer import RankTokenizer
from mixit_titan.files import json_text
from mixit_titan.reading import read_json
from mixit_titan.runtime.trained import Trained

_BYTES_END = "<|endoftext|>"


def write_tokenizer(trained: Trained, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json, which give a text the ids of the run."""
    tokenizer = trained.tokenizer
    settings: dict[str, Any] = {}
    if isinstance(tokenizer, HuggingFaceTokenizer):
        source = Path(trained.tokenizer_name)
        for file in filter(
            Path.is_file, source.glob("[!.]*")
        ):  # not the rest of an interrupted copy
            shutil.copyfile(file, folder / file.name)
        if (folder / "tokenizer_config.json").exists():
            settings = read_json(folder / "tokenizer_config.json", dict)
    elif isinstance(tokenizer, RankTokenizer):
        from_ranks(tokenizer.encoding).save(str(folder / "tokenizer.json"))
        settings = {"eos_token": tokenizer.encoding.decode([tokenizer.eos_id])}
    else:
        from_bytes(tokenizer.eos_id).save(str(folder / "tokenizer.json"))
        settings = {"eos_token": _BYTES_END}
    # Otherwise transformers would build the original Llama's tokenizer around the vocabulary.
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"} | settings
    (folder / "tokenizer_config.json").write_text(json_text(settings, indent=2) + "\n")


def from_bytes(end: int) -> Tokenizer:
    """The byte tokenizer as a Hugging Face tokenizer; `end` is its end-of-text id."""
    alphabet = letters()
    tokenizer = Tokenizer(models.BPE({alphabet[byte]: byte for byte in range(256)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    assert tokenizer.add_special_tokens([_BYTES_END]) == 1
    assert tokenizer.token_to_id(_BYTES_END) == end
    return tokenizer
