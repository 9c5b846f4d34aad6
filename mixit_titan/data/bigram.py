"""The loss of a bigram table: the baseline of models that should use more than one token."""

import functools
from pathlib import Path

import torch

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.data.loader import RowLoader
from mixit_titan.data.prepared import prepared_data
from mixit_titan.data.shards import is_prepared, read_manifest
from mixit_titan.data.sources import STDLIB

_LARGEST = 4096  # entries of a vocabulary: the table has the square of it
_COUNTED = 2**26  # training tokens, at most
_ROWS = 4096  # read at a time


@functools.cache
def bigram_loss(path: str, *, seq_len: int, rows: int) -> float | None:
    """Nats per token on the validation rows of a run with seed 0. The table is counted on training
    rows; a pair that they lack has a share of its second token's frequency. None if the vocabulary
    is too large, or the text is not here."""
    if path != STDLIB and not Path(path).exists():
        return None
    if is_prepared(path) and read_manifest(path).tokenizer.vocab_size > _LARGEST:
        return None  # before the checksums of a large corpus
    folder, _ = prepared_data(path, None, vocab=_LARGEST)
    size = read_manifest(folder).tokenizer.vocab_size
    if size > _LARGEST:
        return None
    seen = _pairs(folder, "train", seq_len, _COUNTED // seq_len, size)
    single = seen.sum(0) + 1
    table = (seen + single / single.sum()) / (seen.sum(1, keepdim=True) + 1)
    held_out = _pairs(folder, "validation", seq_len, rows, size)
    return float(-(held_out * table.log()).sum() / held_out.sum())


def _pairs(folder: str, split: str, seq_len: int, rows: int, size: int) -> torch.Tensor:
    """How often each token is the label of each input."""
    config = RowLoader.Config(dataset_path=folder, split=split, infinite=False, limit=rows)
    loader = config.build(dp_world_size=1, dp_rank=0, seq_len=seq_len, local_batch_size=_ROWS)
    counts = torch.zeros(size * size, dtype=torch.float64)
    for inputs, labels in loader:
        asked = labels != IGNORE_INDEX
        pairs = inputs["input"][asked] * size + labels[asked]
        counts += torch.bincount(pairs, minlength=size * size)
    return counts.view(size, size)
