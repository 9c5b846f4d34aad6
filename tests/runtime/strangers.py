"""Checkpoints as a stranger would make them: complete, with right checksums, and with code."""

import io
import os
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, MetadataIndex

from mixit_titan.files import write_json


class Attack:
    """Unpickled, it makes a folder."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.made),)


def saved(value: Any) -> bytes:
    """As DCP would write it."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def change_metadata(checkpoint: Path, change: Callable[[Metadata], object]) -> None:
    metadata = pickle.loads((checkpoint / ".metadata").read_bytes())
    change(metadata)
    write_metadata(checkpoint, pickle.dumps(metadata))


def write_metadata(checkpoint: Path, content: bytes) -> None:
    (checkpoint / ".metadata").write_bytes(content)
    if (checkpoint / "checksums.json").exists():
        write_json(checkpoint / "checksums.json", {".metadata": f"{zlib.crc32(content):08x}"})


def put(checkpoint: Path, key: str, content: bytes, *, as_bytes: bool) -> None:
    """`content` in place of an entry, which is said to be bytes, or stays what it was."""
    file = next(checkpoint.glob("*.distcp"))
    place = _StorageInfo(file.name, file.stat().st_size, len(content))
    with file.open("ab") as stream:
        stream.write(content)

    def change(metadata: Metadata) -> None:
        indices = [index for index in metadata.storage_data if index.fqn == key]
        assert indices, key
        for index in indices:
            metadata.storage_data[index] = place
        if as_bytes:
            metadata.state_dict_metadata[key] = BytesStorageMetadata()
            metadata.storage_data[MetadataIndex(key)] = place

    change_metadata(checkpoint, change)


BYTES = {
    "weight": "norm.weight",
    "embedding": "tok_embeddings.weight",
    "identity": "mixit_identity",
    "random state": "train_state.rng",
    "step": "train_state.step",
    "moment": "optimizer.state.norm.weight.exp_avg",
    "learning rate": "optimizer.param_groups.norm.weight.lr",
    "loader": "dataloader.consumed",
    "schedule": "lr_scheduler.last_epoch",
}
"""What is declared as bytes, which DCP unpickles."""

MODEL_ONLY = ("weight", "embedding", "weight's file", "weight's raw file")
"""What is read where only the weights are."""


def _nest(checkpoint: Path, attack: Attack) -> None:
    change_metadata(checkpoint, lambda metadata: metadata.planner_data.update(x=attack))


POISONS: dict[str, Callable[[Path, Attack], object]] = {
    **{
        name: lambda checkpoint, attack, key=key: put(checkpoint, key, saved(attack), as_bytes=True)
        for name, key in BYTES.items()
    },
    "weight's file": lambda checkpoint, attack: put(
        checkpoint, "norm.weight", saved(attack), as_bytes=False
    ),
    "weight's raw file": lambda checkpoint, attack: put(
        checkpoint, "norm.weight", pickle.dumps(attack), as_bytes=False
    ),
    "moment's file": lambda checkpoint, attack: put(
        checkpoint, BYTES["moment"], saved(attack), as_bytes=False
    ),
    "identity's file": lambda checkpoint, attack: put(
        checkpoint, "mixit_identity", saved(attack), as_bytes=False
    ),
    "metadata": lambda checkpoint, attack: write_metadata(checkpoint, pickle.dumps(attack)),
    "part of the metadata": _nest,
}
