"""Prepared folders as the tests see them: read without the code under test."""

import hashlib
import json
from pathlib import Path

import numpy as np
from torchtitan.components.tokenizer import BaseTokenizer


def documents(folder: Path, split: str) -> list[list[int]]:
    """The ids of each document, without its end-of-text id, which is checked to be there."""
    manifest = json.loads((folder / "manifest.json").read_text())
    found = []
    for shard in manifest["splits"].get(split, {"shards": []})["shards"]:
        ids = np.fromfile(folder / f"{shard['name']}.tokens", manifest["dtype"])
        start = 0
        for end in np.fromfile(folder / f"{shard['name']}.ends", "uint64").tolist():
            assert ids[end - 1] == manifest["tokenizer"]["eos_id"]
            found.append(ids[start : end - 1].tolist())
            start = end
        assert start == len(ids) == shard["tokens"]
    return found


def texts(folder: Path, split: str, tokenizer: BaseTokenizer) -> list[str]:
    return [tokenizer.decode(ids) for ids in documents(folder, split)]


def content(folder: Path) -> dict[str, bytes]:
    """Every file that is not hidden."""
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.startswith(".")
    }


def stories(count: int, seed: int = 0) -> list[str]:
    """Texts of different lengths, every fifth one like an earlier one."""
    made = []
    for n in range(count):
        source = n - 3 if n % 5 == 4 else n
        digest = hashlib.sha256(f"{seed} {source}".encode()).hexdigest()
        made.append(f"Story {source}: naïve 数学 🙂\n" + " ".join(digest[: 3 + source % 50]))
    return made


def write_jsonl(path: Path, made: list[str]) -> Path:
    path.write_text("".join(json.dumps({"id": n, "text": t}) + "\n" for n, t in enumerate(made)))
    return path
