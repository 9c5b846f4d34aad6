"""Rows of tokens in an order that does not depend on the number of ranks.

The order of an epoch is computed, not stored (permutation.py). A rank's n-th microbatch of b rows
takes the places (n * ranks + rank) * b ... of it, so that a global batch is the same set of rows
for any number of ranks and any split into microbatches, and the state is one number: places
consumed.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.loss import IGNORE_INDEX
from torchtitan.components.tokenizer import BaseTokenizer

from mixit_titan.data.corpus import STDLIB, Split, documents
from mixit_titan.data.permutation import permuted
from mixit_titan.errors import ConfigError


class RowLoader(BaseDataLoader):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        dataset_path: str | None = STDLIB
        split: Split = "train"
        seed: int = 0
        """Of the order of the rows."""
        infinite: bool = True
        """Start another epoch after the last row, in another order."""
        positions: bool = False
        """Also give the positions in a row, which flex and varlen attention build masks from."""

    def __init__(
        self,
        config: Config,
        *,
        dp_world_size: int,
        dp_rank: int,
        tokenizer: BaseTokenizer,
        seq_len: int,
        local_batch_size: int,
        **_: Any,
    ) -> None:
        self.config = config
        self.ranks, self.rank = dp_world_size, dp_rank
        self.seq_len, self.batch = seq_len, local_batch_size
        self.tokens = tokenize(config.dataset_path, config.split, tokenizer)
        self.rows = (len(self.tokens) - 1) // seq_len
        if self.rows < 1:
            raise ConfigError(
                f"data.path = {config.dataset_path!r} has {len(self.tokens)} {config.split} "
                f"tokens, fewer than one row of training.seq_len = {seq_len}"
            )
        self.consumed = 0  # places, over all ranks

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        while self.config.infinite or self.consumed < self.rows:
            first = self.consumed + self.rank * self.batch
            self.consumed += self.ranks * self.batch
            inputs, labels = self._rows(np.arange(first, first + self.batch))
            batch = {"input": inputs}
            if self.config.positions:
                batch["positions"] = torch.arange(self.seq_len).expand(self.batch, -1).contiguous()
            yield batch, labels

    def _rows(self, places: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        epochs, indices = np.divmod(places, self.rows)
        if self.config.infinite:
            for epoch in np.unique(epochs):
                now = epochs == epoch
                indices[now] = permuted(
                    indices[now], self.rows, seed=self.config.seed, epoch=int(epoch)
                )
        length = self.seq_len
        rows = np.stack([self.tokens[i * length : (i + 1) * length + 1] for i in indices])
        tokens = torch.from_numpy(rows.astype(np.int64))
        inputs, labels = tokens[:, :-1], tokens[:, 1:].contiguous()
        if not self.config.infinite:
            # Every rank yields as many batches as the others; a row past the end does not count.
            labels[torch.from_numpy(epochs > 0)] = IGNORE_INDEX
        return inputs.contiguous(), labels

    def state_dict(self) -> dict[str, Any]:
        return {"consumed": self.consumed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.consumed = state_dict["consumed"]


@functools.lru_cache(maxsize=2)  # validation builds its loader anew each time
def tokenize(path: str, split: Split, tokenizer: BaseTokenizer) -> np.ndarray:
    """All documents of a split in one array, each followed by the end-of-text token."""
    parts = []
    for text in documents(path, split):
        ids = tokenizer.encode(text, add_bos=False, add_eos=False)
        parts.append(np.asarray(ids, dtype=np.uint32))
        parts.append(np.asarray([tokenizer.eos_id], dtype=np.uint32))
    return np.concatenate(parts)
