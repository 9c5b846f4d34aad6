"""How many bytes of text each token stands for, so that losses are comparable across tokenizers."""

import json
from dataclasses import dataclass

import numpy as np
from torchtitan.components.tokenizer import BaseTokenizer, HuggingFaceTokenizer

from mixit_titan.data.rank_tokenizer import RankTokenizer
from mixit_titan.data.shards import TokenSplit
from mixit_titan.data.tokenizers import ByteTokenizer, NumberTokenizer, vocabulary
from mixit_titan.log import logger


@dataclass(frozen=True, kw_only=True)
class TextCounts:
    """The counts of a text that is not a split of a prepared folder."""

    name: str
    documents: int
    tokens: int
    """With the end-of-text ids."""
    bytes: int
    eos_id: int


def token_bytes(tokenizer: BaseTokenizer, split: TokenSplit | TextCounts) -> np.ndarray:
    """Bytes of each token id; special tokens have none. Exact for byte-level tokenizers; for
    others, the average over the tokens of the split."""
    sizes = np.zeros(vocabulary(tokenizer))
    if isinstance(tokenizer, ByteTokenizer | NumberTokenizer):
        sizes[: tokenizer.eos_id] = 1
    elif isinstance(tokenizer, RankTokenizer):
        for token, rank in tokenizer.encoding._mergeable_ranks.items():
            sizes[rank] = len(token)
    elif isinstance(tokenizer, HuggingFaceTokenizer) and _is_byte_level(tokenizer):
        for token, rank in tokenizer.tokenizer.get_vocab(with_added_tokens=False).items():
            sizes[rank] = len(token)  # it writes each byte as one character
        for rank, added in tokenizer.tokenizer.get_added_tokens_decoder().items():
            sizes[rank] = 0 if added.special else len(added.content.encode())
    else:
        sizes[:] = split.bytes / (split.tokens - split.documents)
        sizes[split.eos_id] = 0
        logger.warning(
            "The tokenizer does not say how many bytes a token has: bits per byte are computed "
            f"from the {split.name} split's average of {sizes.max():.3f}"
        )
    return sizes


def _is_byte_level(tokenizer: HuggingFaceTokenizer) -> bool:
    decoder = json.loads(tokenizer.tokenizer.to_str())["decoder"] or {}
    return [part["type"] for part in decoder.get("decoders", [decoder]) if part] == ["ByteLevel"]
