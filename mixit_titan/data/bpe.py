"""Trains a tokenizer for a corpus: byte-level BPE, by the `tokenizers` library."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from mixit_titan.data.splits import Document
from mixit_titan.errors import ConfigError
from mixit_titan.files import write_json, write_text

_END_OF_TEXT = "<|endoftext|>"
_SMALLEST = 257  # every byte, and the end of a text
_SAMPLE = 2**26  # bytes of the first training documents


def check_vocabulary(size: int) -> None:
    """Refuse a vocabulary that is too small for all bytes and the end of a text."""
    if size < _SMALLEST:
        raise ConfigError(
            f"--train-tokenizer is {size}: at least {_SMALLEST} tokens are needed, one for each "
            "byte and one for the end of a text"
        )


def train_tokenizer(documents: Iterable[Document], size: int, folder: Path) -> None:
    """Write a Hugging Face tokenizer of at most `size` tokens. The same documents give the same
    tokenizer on any machine."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[_END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sample(documents), trainer)
    # torchtitan finds the end of a text in tokenizer_config.json. The other file is written last,
    # because it makes the folder a tokenizer.
    marks = {"eos_token": _END_OF_TEXT, "added_tokens_decoder": {"0": {"content": _END_OF_TEXT}}}
    write_json(folder / "tokenizer_config.json", marks)
    write_text(folder / "tokenizer.json", tokenizer.to_str(pretty=True) + "\n")


def _sample(documents: Iterable[Document]) -> Iterator[str]:
    size = 0
    for split, text in documents:
        if split == "train":
            yield text.decode()
            size += len(text)
        if size >= _SAMPLE:
            return
