"""Batches of rows in an order that depends on nothing but the seed.

The order of an epoch is computed, not stored (permutation.py). A rank's n-th microbatch of b rows
takes the places (n * ranks + rank) * b ... of it, so that a global batch is the same set of rows
for any number of ranks, workers and microbatches, and the state is one number: places consumed.
"""

import errno
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info
from torchdata.stateful_dataloader import StatefulDataLoader
from torchtitan.components.loss import IGNORE_INDEX
from torchtitan.config import Configurable

from mixit_titan.data.packing import PACKINGS, DocumentRows, Packing, StreamRows
from mixit_titan.data.permutation import permuted
from mixit_titan.data.shards import open_split, read_manifest
from mixit_titan.device import has_gpu
from mixit_titan.errors import ConfigError, RankFailed, RunFailed
from mixit_titan.parent import end_with_parent

Batch = tuple[dict[str, torch.Tensor], torch.Tensor]
"""{"input": ..., "positions": ...} and the labels."""

CONTENT = ("rows of the data", "tokens of the data", "bytes of the data")
COUNTED_BY = ("data.packing", "data.seed", "training.seq_len", *CONTENT)
"""What says which rows have been consumed: a run goes on only where all of it is the same."""

_NO_SHARED_MEMORY = ("shared memory", "unable to write to file </torch_", "Bus error")
_LEAST_BYTES, _LEAST_FILES = 2**20, 100  # of /dev/shm, to begin with
_FOREVER = 2**62
_BLOCK = 4096


class RowLoader(Configurable):
    """torchtitan's base class of loaders moves with its version, and nothing asks for it."""

    @dataclass(kw_only=True, slots=True)
    class Config(Configurable.Config):
        dataset_path: str
        """A folder that `mixit-titan prepare` has written."""
        split: str = "train"
        packing: Packing = "stream"
        seed: int = 0
        """Of the order of the rows."""
        workers: int = 0
        """Processes that read ahead; 0: the rank reads by itself."""
        positions: bool = True
        """Also give each token's position in its document. Rows of one document do without, unless
        the attention builds its mask from them."""
        infinite: bool = True
        """Start another epoch after the last row, in another order."""
        limit: int = -1
        """Rows of a loader that is not infinite; -1: all."""

        def identity(self, seq_len: int) -> dict[str, Any]:
            """What a checkpoint must agree on with the data: the tokens, and the rows."""
            packed, tokenizer = self.packed(seq_len), read_manifest(self.dataset_path).tokenizer
            content = (packed.rows, packed.split.tokens, packed.split.bytes)
            counted = (self.packing, self.seed, seq_len, *content)
            rows = dict(zip(COUNTED_BY, counted, strict=True))
            said = {"data.tokenizer": tokenizer.fingerprint, "data.tokenizer.name": tokenizer.name}
            return said | rows

        def packed(self, seq_len: int) -> DocumentRows | StreamRows:
            """The rows, in the order of the files; a ConfigError if there is not one."""
            return PACKINGS[self.packing](open_split(self.dataset_path, self.split), seq_len)

    def __init__(
        self,
        config: Config,
        *,
        dp_world_size: int,
        dp_rank: int,
        seq_len: int,
        local_batch_size: int,
        **_: Any,
    ) -> None:
        self.config = config
        self.batch, self.global_batch = local_batch_size, dp_world_size * local_batch_size
        self.rank = dp_rank
        self.batches = Batches(config, config.packed(seq_len), local_batch_size)
        self.identity = config.identity(seq_len)
        self.vocab = self.batches.packed.split.vocab
        self.counted_by = {key: self.identity[key] for key in COUNTED_BY}
        self.consumed = 0  # places, over all ranks

    def __iter__(self) -> Iterator[Batch]:
        first = self.consumed + self.rank * self.batch
        # Every rank gives as many batches as the others.
        left = _FOREVER if self.config.infinite else self.batches.end - self.consumed
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="'set_vital' is deprecated")
            loader = StatefulDataLoader(
                self.batches,
                batch_size=None,
                sampler=range(first, first + left + -left % self.global_batch, self.global_batch),
                num_workers=self.config.workers,
                pin_memory=has_gpu(),  # which it copies from while the host does other things
                worker_init_fn=_leave_signals_to_the_rank,
                generator=torch.Generator(),  # it draws a seed for workers: not from the model's
                # Its own state would be that of one rank and its workers: ours is `consumed`.
                snapshot_every_n_steps=_FOREVER,
            )
        for batch in _shared_memory_explained(loader) if self.config.workers else loader:
            if isinstance(batch, Exception):
                raise batch
            self.consumed += self.global_batch  # when it is given, not when a worker reads ahead
            yield batch

    def state_dict(self) -> dict[str, Any]:
        return {"consumed": self.consumed, **self.counted_by}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Refuse to go on where rows were counted otherwise: `consumed` would mean other rows."""
        different = [
            f"{key} was {state_dict[key]!r} and is {ours!r}"
            for key, ours in self.counted_by.items()
            if state_dict.get(key, ours) != ours  # the first checkpoints say less
        ]
        if different:
            raise ConfigError(
                f"the run cannot go on exactly, because {', '.join(different)}: set what it was, "
                "or choose another --dump_folder"
            )
        self.consumed = state_dict["consumed"]


class Batches(Dataset):
    """Item p is the batch of the places p, p + 1, ... in the order of all epochs."""

    def __init__(
        self, config: RowLoader.Config, packed: DocumentRows | StreamRows, batch: int
    ) -> None:
        self.config, self.packed, self.batch = config, packed, batch
        limit = packed.rows if config.limit == -1 else min(config.limit, packed.rows)
        self.end = _FOREVER if config.infinite else limit
        self.block, self.order = -1, np.empty(0, dtype=np.int64)

    def __getitem__(self, first: int) -> Batch | Exception:
        """A worker returns what is wrong as its batch: torch would make a message of many lines of
        it, and a traceback."""
        try:
            return self._read(first)
        except (ConfigError, RunFailed) as error:
            if get_worker_info() is None:
                raise
            return error

    def _read(self, first: int) -> Batch:
        places = np.arange(first, first + self.batch)
        inputs, labels, positions = self.packed.read(self._rows(places))
        labels[places >= self.end] = IGNORE_INDEX
        batch = {"input": torch.from_numpy(inputs)}
        if self.config.positions:
            batch["positions"] = torch.from_numpy(np.require(positions, requirements=["C", "W"]))
        labels = torch.from_numpy(labels)
        if get_worker_info() is not None:
            # Here, where a lack of room is an error that the rank gets: a worker's queue would do
            # it in a thread, which prints a traceback and leaves the rank waiting for ever.
            for tensor in (*batch.values(), labels):
                tensor.share_memory_()
        return batch, labels

    def _rows(self, places: np.ndarray) -> np.ndarray:
        """The order is computed for a block of places at a time: a few have the price of many."""
        rows = np.empty_like(places)
        for block in np.unique(places // _BLOCK):
            if block != self.block:
                self.block, self.order = block, self._order(block * _BLOCK + np.arange(_BLOCK))
            here = places // _BLOCK == block
            rows[here] = self.order[places[here] % _BLOCK]
        return rows

    def _order(self, places: np.ndarray) -> np.ndarray:
        epochs, rows = np.divmod(places, self.packed.rows)
        for epoch in np.unique(epochs):
            now = epochs == epoch
            rows[now] = permuted(
                rows[now], self.packed.rows, seed=self.config.seed, epoch=int(epoch)
            )
        return rows


def _shared_memory_explained(loader: Iterable[Batch]) -> Iterator[Batch]:
    """The batches of workers, which come through /dev/shm. A container has 64 MiB of it."""
    advice = (
        "there is no room left in /dev/shm, through which workers hand over their batches: set "
        "data.workers = 0, or mount a larger one (docker run --shm-size=8g)"
    )
    if os.path.isdir("/dev/shm"):
        room = os.statvfs("/dev/shm")
        few = room.f_files and room.f_favail < _LEAST_FILES  # 0: as many as one likes
        if few or room.f_bavail * room.f_frsize < _LEAST_BYTES:
            raise RankFailed(advice)
    try:
        yield from loader
    except (OSError, RuntimeError) as error:
        full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        if not full and not any(text in str(error) for text in _NO_SHARED_MEMORY):
            raise
        raise RankFailed(advice) from error


def _leave_signals_to_the_rank(worker: int) -> None:
    """A terminal sends Ctrl-C to the workers too, and Slurm sends SIGTERM to all processes of a job
    step: the rank goes on to save, and ends its workers in its own time. They end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):  # not on macOS
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        threading.Thread(target=_end_when_the_rank_says_so, daemon=True).start()
    end_with_parent()


def _end_when_the_rank_says_so() -> None:
    rank = multiprocessing.parent_process().pid
    while signal.sigwaitinfo([signal.SIGTERM]).si_pid != rank:
        pass
    os._exit(0)
