"""Shards of random tokens, for benchmarks and rehearsals before the data of a run exist.

Lengths of documents are lognormal, similar to those of web pages. Some tokens are more frequent
than others, so that there is something to learn: the loss falls from ln(vocabulary) to the entropy.
"""

import contextlib
import fcntl
import math
from pathlib import Path

import numpy as np

from mixit_titan.data.shards import (
    Manifest,
    Shard,
    Split,
    TokenizerRecord,
    is_prepared,
    write_manifest,
)
from mixit_titan.data.tokenizers import build_tokenizer, fingerprint
from mixit_titan.data.writer import ShardFile
from mixit_titan.errors import ConfigError
from mixit_titan.files import cache_folder, new_folder
from mixit_titan.reading import regular

SYNTHETIC = "synthetic"
TOKENS = {"train": 2**22, "validation": 2**19}
MEDIAN, SIGMA = 600, 1.0  # of document lengths, including the end-of-text token
_SKEW = 4.0  # u^4 of a uniform u: the first tenth of the vocabulary has over half of the tokens


def synthetic_folder(vocab: int) -> Path:
    """A prepared folder with tokens from `vocab`, always the same. It is created once and cached.
    Several processes may ask at once: one creates it, and the others wait."""
    if vocab < 2:
        raise ConfigError(f"model.vocab = {vocab}: data.path = {SYNTHETIC!r} needs at least 2")
    folder = cache_folder() / f"{SYNTHETIC}-{vocab}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / f"{SYNTHETIC}.lock", "w", opener=regular) as lock:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_prepared(folder):
            with new_folder(folder) as part:
                _write(part, vocab)
    return folder


def _write(folder: Path, vocab: int) -> None:
    name = f"numbers:{vocab}"
    tokenizer = build_tokenizer(name)
    dtype = "uint16" if vocab <= 2**16 else "uint32"
    splits = {}
    for number, (split, tokens) in enumerate(TOKENS.items()):
        shard = _shard(folder, split, tokens, np.random.default_rng(number), vocab, dtype)
        counts = {"documents": shard.documents, "tokens": shard.tokens, "bytes": shard.bytes}
        splits[split] = Split(**counts, shards=(shard,))
    record = TokenizerRecord(
        name=name, fingerprint=fingerprint(tokenizer), vocab_size=vocab, eos_id=tokenizer.eos_id
    )
    source = {"corpus": SYNTHETIC}
    write_manifest(folder, Manifest(source=source, dtype=dtype, tokenizer=record, splits=splits))


def _shard(
    folder: Path, split: str, tokens: int, draw: np.random.Generator, vocab: int, dtype: str
) -> Shard:
    lengths = np.maximum(2, draw.lognormal(math.log(MEDIAN), SIGMA, tokens).astype(np.int64))
    ends = np.cumsum(lengths)
    ends = ends[: np.searchsorted(ends, tokens) + 1]
    ids = ((vocab - 1) * draw.random(ends[-1]) ** _SKEW).astype(np.dtype(dtype).newbyteorder("<"))
    ids[ends - 1] = vocab - 1
    name = f"{split}-00000"
    files = {ending: ShardFile(folder / f"{name}.{ending}") for ending in ("tokens", "ends")}
    files["tokens"].write(ids)
    files["ends"].write(ends.astype("<u8"))
    return Shard(
        name=name,
        documents=len(ends),
        tokens=len(ids),
        bytes=len(ids) - len(ends),  # there is no text: each token counts as one byte
        sha256={ending: file.finish() for ending, file in files.items()},
    )
