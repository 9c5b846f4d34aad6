"""Whether a point fits into memory: said in one sentence, before and while it is measured."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from mixit_titan.bench.settings import Point
from mixit_titan.bench.steps import PLAIN, model_config
from mixit_titan.errors import ConfigError
from mixit_titan.model.accounting import count, memory_per_rank, meta_model
from mixit_titan.runtime.device import has_gpu

_CGROUP = Path("/sys/fs/cgroup/memory.max")


@contextlib.contextmanager
def fitting(point: Point, variants: Sequence[str], ranks: int) -> Iterator[None]:
    """Refuse what cannot fit, and turn an allocation that fails within into one sentence."""
    needed, there = least_memory(point, variants, ranks), memory_of_rank(ranks)
    if needed > there:
        raise _too_big(point, f"it needs at least {_gib(needed)} and a rank has {_gib(there)}")
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise _too_big(point, "the GPU ran out of memory") from error
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):
            raise
        raise _too_big(point, "the machine ran out of memory") from error


def least_memory(point: Point, variants: Sequence[str], ranks: int) -> int:
    """Bytes of a rank below which it cannot work: the state of all models, which are there at once,
    and of one of them the logits and what each layer hands on to the next."""
    state = 0
    for variant in variants:
        config = model_config("standard" if variant == PLAIN else variant, point)
        counts = count(config, meta_model(config), point.shape.seq_len)
        state += memory_per_rank(counts, ranks=ranks, dtype=point.dtype).total
    shape, size = point.shape, 4 if point.dtype == "float32" else 2
    return state + point.tokens * size * (shape.vocab + shape.layers * shape.width)


def memory_of_rank(ranks: int) -> int:
    """Bytes of one rank: its GPU's, or its share of the machine's."""
    if has_gpu():
        return torch.cuda.mem_get_info()[1]
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # no limit, or none that is a number
        total = min(total, int(_CGROUP.read_text()))
    return total // ranks


def _too_big(point: Point, why: str) -> ConfigError:
    return ConfigError(
        f"a batch of {point.batch} sequences of {point.shape.seq_len} tokens does not fit: {why}. "
        "Lower --batch or --seq-len, or name fewer --variants"
    )


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
