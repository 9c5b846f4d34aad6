"""The batch at each place of the order."""

from collections.abc import Sequence

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.data.order import Order
from mixit_titan.data.packing import DocumentRows, Rows, StreamRows
from mixit_titan.errors import ConfigError, RunFailed

Batch = tuple[dict[str, torch.Tensor], torch.Tensor]
"""{"input": ..., "positions": ...} and the labels."""

_BLOCK = 4096


class Batches(Dataset):
    """Item p is the batch of the places p, p + 1, ... in the order of all passes."""

    def __init__(
        self,
        packed: Sequence[DocumentRows | StreamRows],
        order: Order,
        *,
        batch: int,
        end: int,
        positions: bool,
    ) -> None:
        """`packed` contains the rows of each source. Labels from the place `end` on are ignored in
        the loss."""
        self.packed, self.order, self.batch = packed, order, batch
        self.end, self.positions = end, positions
        self.block, self.found = -1, np.empty((2, 0), dtype=np.int64)

    def __getitem__(self, first: int) -> Batch | Exception:
        """The batch that begins at a place. A worker returns an error as its batch, because torch
        would turn it into a message of many lines with a traceback."""
        try:
            return self._read(first)
        except (ConfigError, RunFailed) as error:
            if get_worker_info() is None:
                raise
            return error

    def _read(self, first: int) -> Batch:
        places = np.arange(first, first + self.batch)
        inputs, labels, positions = self._read_rows(*self._find(places))
        labels[places >= self.end] = IGNORE_INDEX
        batch = {"input": torch.from_numpy(inputs)}
        if self.positions:
            batch["positions"] = torch.from_numpy(np.require(positions, requirements=["C", "W"]))
        labels = torch.from_numpy(labels)
        if get_worker_info() is not None:
            # Here, where a lack of room is an error that the rank gets: a worker's queue would do
            # it in a thread, which prints a traceback and leaves the rank waiting forever.
            for tensor in (*batch.values(), labels):
                tensor.share_memory_()
        return batch, labels

    def _read_rows(self, sources: np.ndarray, rows: np.ndarray) -> Rows:
        found = np.unique(sources).tolist()
        parts = [self.packed[source].read(rows[sources == source]) for source in found]
        if len(parts) == 1:
            return parts[0]
        back = np.argsort(np.argsort(sources, kind="stable"), kind="stable")
        return tuple(np.concatenate(arrays)[back] for arrays in zip(*parts, strict=True))

    def _find(self, places: np.ndarray) -> np.ndarray:
        """The source and the row of each place, computed for a block of places at once, because a
        few cost as much as many."""
        found = np.empty((2, len(places)), dtype=np.int64)
        for block in np.unique(places // _BLOCK):
            if block != self.block:
                self.block, self.found = block, self.order.find(block * _BLOCK + np.arange(_BLOCK))
            here = places // _BLOCK == block
            found[:, here] = self.found[:, places[here] % _BLOCK]
        return found
