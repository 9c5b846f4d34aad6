"""Prepared folders for tests, written from lists of tokens by a second implementation."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mixit_titan.data.tokenizers import ByteTokenizer, fingerprint

Documents = Sequence[Sequence[int]]
EOS = 256


def write_shards(
    folder: Path, per_shard: int = 7, dtype: str = "uint16", **splits: Documents
) -> Path:
    """`splits` are documents without their end-of-text id, as bytes; a shard holds `per_shard`."""
    folder.mkdir(parents=True, exist_ok=True)
    table = {}
    for split, documents in splits.items():
        shards = [
            _write_shard(folder, f"{split}-{n:05}", documents[at : at + per_shard], dtype)
            for n, at in enumerate(range(0, len(documents), per_shard))
        ]
        sums = {k: sum(s[k] for s in shards) for k in ("documents", "tokens", "bytes")}
        table[split] = {**sums, "shards": shards}
    tokenizer = ByteTokenizer()
    manifest = {
        "format": 1,
        "source": {"name": "test"},
        "dtype": dtype,
        "tokenizer": {
            "name": "bytes",
            "fingerprint": fingerprint(tokenizer),
            "vocab_size": 257,
            "eos_id": EOS,
        },
        "splits": table,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def _write_shard(folder: Path, name: str, documents: Documents, dtype: str) -> dict:
    ends = np.cumsum([len(document) + 1 for document in documents])
    ids = [token for document in documents for token in (*document, EOS)]
    files = {"tokens": np.array(ids, dtype=dtype).tobytes(), "ends": ends.astype("<u8").tobytes()}
    for ending, content in files.items():
        (folder / f"{name}.{ending}").write_bytes(content)
    return {
        "name": name,
        "documents": len(documents),
        "tokens": len(ids),
        "bytes": len(ids) - len(documents),
        "sha256": {
            ending: hashlib.sha256(content).hexdigest() for ending, content in files.items()
        },
    }


def random_documents(count: int, longest: int, seed: int = 0) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.integers(0, 256, draw.integers(1, longest + 1)).tolist() for _ in range(count)]
