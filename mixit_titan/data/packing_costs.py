"""What the two ways of packing documents into rows cost, for rows of several lengths."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from mixit_titan.data.shards import Manifest, Shard, map_shard


class PackingCosts(NamedTuple):
    """Shares of a split, for rows of one length."""

    documents_split: float
    """packing = "stream": documents that continue in another row, where they start again."""
    tokens_cut_off: float
    """packing = "documents": tokens beyond the end of their document's row."""
    padding: float
    """packing = "documents": places of the rows without a token."""


def packing_costs(folder: Path, manifest: Manifest, split: str, seq_len: int) -> PackingCosts:
    """The costs for a split. A row has L inputs and, with the label of the last one, L + 1 tokens;
    the next row of a stream begins with that label."""
    cut = padding = divided = first = 0
    for shard in manifest.splits[split].shards:
        ends = _ends(folder, manifest, shard)
        lengths = np.diff(ends, prepend=0)
        cut += int(np.maximum(lengths - seq_len - 1, 0).sum())
        padding += int(np.maximum(seq_len + 1 - lengths, 0).sum())
        # The rows of the first and of the last input; the end of a text is only a label.
        starts, lasts = first + ends - lengths, first + ends - 2
        divided += int((starts // seq_len < lasts // seq_len).sum())
        first += shard.tokens
    counts = manifest.splits[split]
    return PackingCosts(
        documents_split=divided / counts.documents,
        tokens_cut_off=cut / counts.tokens,
        padding=padding / (counts.documents * seq_len),
    )


def _ends(folder: Path, manifest: Manifest, shard: Shard) -> np.ndarray:
    if not shard.documents:
        return np.empty(0, dtype=np.int64)
    return map_shard(folder, shard, manifest.id_dtype, "ends").astype(np.int64)
