"""Batches of rows in an order that depends on nothing but the seed.

The order is computed, not stored (order.py). A rank's n-th microbatch of b rows takes the places (n
* ranks + rank) * b ... of it, so that a global batch is the same set of rows for any number of
ranks, workers and microbatches, and the state is a single number: places consumed. The state of a
mixture has one more number per source. A folder alone is a mixture of one.

For instance, the places of two ranks with b = 2:

    microbatch   0          1
    rank 0       0 1        4 5
    rank 1       2 3        6 7
"""

import errno
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from torchdata.stateful_dataloader import StatefulDataLoader
from torchtitan.config import Configurable

from mixit_titan.data.batches import Batch, Batches
from mixit_titan.data.beginnings import begins_with, content
from mixit_titan.data.mixture import ALONE, Source, Weights
from mixit_titan.data.order import Order
from mixit_titan.data.packing import PACKINGS, DocumentRows, Packing, StreamRows
from mixit_titan.data.shards import open_split, read_manifest
from mixit_titan.device import has_gpu
from mixit_titan.errors import ConfigError, RankFailed
from mixit_titan.log import logger
from mixit_titan.parent import end_with_parent

CONTENT = ("rows of the data", "tokens of the data", "bytes of the data")
_SETTINGS = ("data.packing", "data.seed", "training.seq_len")
_SOURCES = "data.sources"
COUNTED_BY = (*_SETTINGS, *CONTENT, _SOURCES)
"""What determines which rows have been consumed: a run can resume only if all of it is the same,
except that sources may have been extended."""

_NO_SHARED_MEMORY = ("shared memory", "unable to write to file </torch_", "Bus error")
_LEAST_BYTES, _LEAST_FILES = 2**20, 100  # of /dev/shm, to begin with
_FOREVER = 2**62


class RowLoader(Configurable):
    """The data loader of torchtitan's Trainer. It is not a subclass of torchtitan's base class,
    which changes with each version and is never checked."""

    @dataclass(kw_only=True, slots=True)
    class Config(Configurable.Config):
        """What is loaded, in which order."""

        dataset_path: str
        """A folder that `mixit-titan prepare` wrote; for a mixture, the first one."""
        sources: Annotated[list[Source], tyro.conf.Suppress] = field(default_factory=list)
        """The sources of a mixture; empty: the folder alone."""
        weights: Annotated[list[Weights], tyro.conf.Suppress] = field(default_factory=list)
        """The weights of the sources."""
        split: str = "train"
        packing: Packing = "stream"
        seed: int = 0
        """Seed of the order of the rows."""
        workers: int = 0
        """Processes that read ahead; 0: the rank reads by itself."""
        positions: bool = True
        """Also give each token's position in its document. Rows of one document do not need it,
        unless attention builds its mask from positions."""
        infinite: bool = True
        """Start another epoch after the last row, in another order."""
        limit: int = -1
        """The number of rows of a loader that is not infinite; -1: all."""

        def by_source(self) -> dict[str, "RowLoader.Config"]:
            """A config for each source of a mixture, by its name; without a mixture, this
            config."""
            if not self.sources:
                return {Path(self.dataset_path).name: self}
            alone = {"sources": [], "weights": []}
            return {s.name: replace(self, dataset_path=s.path, **alone) for s in self.sources}

        def identity(self, seq_len: int) -> dict[str, Any]:
            """What a checkpoint and the data must agree on: the tokens, and the rows."""
            packed, tokenizer = self.packed(seq_len), read_manifest(self.dataset_path).tokenizer
            first = packed[0]
            counted = (self.packing, self.seed, seq_len)
            counts = (first.rows, first.split.tokens, first.split.bytes)
            said = {"data.tokenizer": tokenizer.fingerprint, "data.tokenizer.name": tokenizer.name}
            said |= dict(zip((*_SETTINGS, *CONTENT), (*counted, *counts), strict=True))
            return said | ({_SOURCES: [content(p.split) for p in packed]} if self.sources else {})

        def as_of(self, saved: dict[str, Any], *, seq_len: int) -> dict[str, Any]:
            """Our identity as it was for a checkpoint with the identity `saved`, if since then
            sources were only extended or added; else our identity."""
            ours, before = self.identity(seq_len), saved.get(_SOURCES)
            if not self.sources or not isinstance(before, list) or len(before) > len(self.sources):
                return ours
            packed = self.packed(seq_len)
            if not all(begins_with(p.split, b) for p, b in zip(packed, before, strict=False)):
                return ours
            return ours | {key: saved[key] for key in (*CONTENT, _SOURCES) if key in saved}

        def packed(self, seq_len: int) -> list[DocumentRows | StreamRows]:
            """The rows of each source, in the order of the files; raises a ConfigError if a source
            has none."""
            paths = [source.path for source in self.sources] or [self.dataset_path]
            splits = [open_split(path, self.split) for path in paths]
            return [PACKINGS[self.packing](split, seq_len) for split in splits]

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
        packed = config.packed(seq_len)
        rows = [source.rows for source in packed]
        self.order = Order(rows, config.weights or ALONE, seed=config.seed)
        limit = rows[0] if config.limit == -1 else min(config.limit, rows[0])
        self.batches = Batches(
            packed,
            self.order,
            batch=local_batch_size,
            end=_FOREVER if config.infinite else limit,
            positions=config.positions,
        )
        self.names = list(config.by_source())
        self.identity, self.as_of = config.identity(seq_len), partial(config.as_of, seq_len=seq_len)
        self.vocab, self.eos_id = packed[0].split.vocab, packed[0].split.eos_id
        counted = _SETTINGS if config.sources else (*_SETTINGS, *CONTENT)
        self.counted_by = {key: self.identity[key] for key in counted}
        self.consumed = 0  # places, over all ranks
        self.repeats = [0] * len(packed)  # that have been logged

    def __iter__(self) -> Iterator[Batch]:
        first = self.consumed + self.rank * self.batch
        # Every rank yields equally many batches.
        left = _FOREVER if self.config.infinite else self.batches.end - self.consumed
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="'set_vital' is deprecated")
            loader = StatefulDataLoader(
                self.batches,
                batch_size=None,
                sampler=range(first, first + left + -left % self.global_batch, self.global_batch),
                num_workers=self.config.workers,
                pin_memory=has_gpu(),  # for asynchronous copies
                worker_init_fn=_leave_signals_to_the_rank,
                generator=torch.Generator(),  # for the workers' seed, not the model's generator
                # Its own state would be specific to one rank and its workers; ours is `consumed`.
                snapshot_every_n_steps=_FOREVER,
            )
        for batch in _shared_memory_explained(loader) if self.config.workers else loader:
            if isinstance(batch, Exception):
                raise batch
            self.consumed += self.global_batch  # when it is yielded, not when a worker reads ahead
            if self.config.infinite:
                self._say_repeats()
            yield batch

    def given(self) -> dict[str, tuple[int, int]]:
        """For each source by its name, the rows that all ranks together have been given, and how
        many times it has started again."""
        return dict(zip(self.names, self.order.given(self.consumed), strict=True))

    def _say_repeats(self) -> None:
        for source, (name, (_, repeats)) in enumerate(self.given().items()):
            if repeats > self.repeats[source]:
                rows = self.order.passes[source].rows
                logger.info(
                    f"All {rows:,} rows of {name} have been used: pass {repeats + 1} begins"
                )
                self.repeats[source] = repeats

    def state_dict(self) -> dict[str, Any]:
        """The places consumed, and what they depend on."""
        state = {"consumed": self.consumed, **self.counted_by}
        if self.config.sources:
            state["sources"] = self.order.state(self.consumed)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume, unless rows were counted in another way: `consumed` would then mean other
        rows."""
        different = [
            f"{key} was {state_dict[key]!r} and is {ours!r}"
            for key, ours in self.counted_by.items()
            if state_dict.get(key, ours) != ours  # the first checkpoints record less
        ]
        if different:
            raise ConfigError(
                f"the run cannot resume exactly, because {', '.join(different)}: restore the "
                "setting, or choose another --dump_folder"
            )
        if self.config.sources:
            self.order.continue_from(state_dict.get("sources", "[]"), state_dict["consumed"])
            self.batches.block = -1  # discard the block computed before
        self.consumed = state_dict["consumed"]
        self.repeats = [repeats for _, repeats in self.given().values()]


def _shared_memory_explained(loader: Iterable[Batch]) -> Iterator[Batch]:
    """The batches of workers, which arrive through /dev/shm. A container has 64 MiB of it by
    default."""
    advice = (
        "there is no room left in /dev/shm, through which workers pass their batches: set "
        "data.workers = 0, or mount a larger one (docker run --shm-size=8g)"
    )
    if os.path.isdir("/dev/shm"):
        room = os.statvfs("/dev/shm")
        few = room.f_files and room.f_favail < _LEAST_FILES  # 0: unlimited
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
    """Ignore signals in a worker. A terminal sends Ctrl-C to workers, too, and Slurm sends SIGTERM
    to all processes of a job step: the rank continues until it has saved, and then ends its
    workers. They also end with it."""
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
