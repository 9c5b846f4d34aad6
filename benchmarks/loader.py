"""Tokens per second of the loader alone, from warm shards.

    python benchmarks/loader.py --out runs/bench_loader.json

Writes shards of random tokens into a temporary folder, in documents about as long as web pages, and
reads them with both packings, without workers and with two. Prints one JSON object and writes it to
the file.
"""

import hashlib
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from mixit_titan.data.loader import RowLoader
from mixit_titan.data.shards import Manifest, Shard, Split, TokenizerRecord, write_manifest
from mixit_titan.files import write_text

_EOS = 50256


@dataclass
class Arguments:
    """Measure the loader."""

    out: Path = Path("runs/bench_loader.json")
    tokens: int = 64_000_000
    """Tokens of the complete folder, in 16-bit ids."""
    shards: int = 300
    seq_len: int = 2048
    batch: int = 16
    """Rows per batch."""
    seconds: float = 5.0
    """Duration of each measurement."""
    mean_document: int = 1000
    """Mean length of a document in tokens."""


def main(args: Arguments) -> None:
    """Measure, print and write the result."""
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder), args)
        rates = {
            f"{packing}, {workers} workers": _rate(folder, packing, workers, args)
            for packing in ("documents", "stream")
            for workers in (0, 2)
        }
    settings = {"corpus": args.tokens, "seq_len": args.seq_len, "batch": args.batch}
    result = {**settings, "mean_document": args.mean_document, "tokens": rates}
    write_text(args.out, json.dumps(result, indent=2) + "\n")
    print(json.dumps(result))


def _rate(folder: str, packing: str, workers: int, args: Arguments) -> dict[str, int]:
    """Tokens of complete rows, padding included, as a model reads them: per second, and per second
    of CPU time of the reading process, which is more reliable on a busy machine."""
    config = RowLoader.Config(dataset_path=folder, packing=packing, workers=workers)
    loader = RowLoader(
        config, dp_rank=0, dp_world_size=1, seq_len=args.seq_len, local_batch_size=args.batch
    )
    batches = iter(loader)
    for _ in range(50):
        next(batches)
    tokens, start, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - start < args.seconds:
        for _ in range(20):
            tokens += next(batches)[1].numel()
    rates = {"per_s": round(tokens / (time.perf_counter() - start))}
    if workers == 0:
        rates["per_cpu_s"] = round(tokens / (time.process_time() - cpu))
    return rates


def _write(folder: Path, args: Arguments) -> None:
    draw = np.random.default_rng(0)
    shards = []
    for n in range(args.shards):
        tokens = draw.integers(0, _EOS, args.tokens // args.shards, dtype=np.uint16)
        lengths = 2 + draw.exponential(args.mean_document, len(tokens)).astype(np.int64)
        ends = np.cumsum(lengths)
        ends = np.append(ends[ends < len(tokens)], len(tokens)).astype("<u8")
        tokens[ends - 1] = _EOS
        files = {"tokens": tokens.tobytes(), "ends": ends.tobytes()}
        shard = Shard(
            name=f"train-{n:05}",
            documents=len(ends),
            tokens=len(tokens),
            bytes=4 * len(tokens),
            sha256={
                ending: hashlib.sha256(content).hexdigest() for ending, content in files.items()
            },
        )
        for ending, path in shard.files(folder).items():
            path.write_bytes(files[ending])
        shards.append(shard)
    sums = {k: sum(getattr(s, k) for s in shards) for k in ("documents", "tokens", "bytes")}
    record = TokenizerRecord(name="none", fingerprint="", vocab_size=_EOS + 1, eos_id=_EOS)
    split = Split(**sums, shards=tuple(shards))
    manifest = Manifest(source={}, dtype="uint16", tokenizer=record, splits={"train": split})
    write_manifest(folder, manifest)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
