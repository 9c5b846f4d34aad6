"""Tensors out of a checkpoint, and nothing else.

DCP pickles a checkpoint's metadata and unpickles what it finds, and a pickle of a stranger can run
code. Torch has no restricted way to read it. So the metadata is read here by an unpickler that
knows the few classes which DCP writes, none of which does anything; and only what the metadata
calls a tensor is loaded, which DCP reads with `weights_only`.
"""

import pickle
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import metadata
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from mixit_titan.errors import ConfigError

_OTHERS = {
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("torch", "Size"),
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),  # its name in Python 3.13
}


class TensorReader(dcp.FileSystemReader):
    """DCP's reader, with metadata that runs no code. `storage_reader` of `dcp.load`."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with (Path(self.path) / ".metadata").open("rb") as file:
            found = _MetadataUnpickler(file).load()
        if not isinstance(found, Metadata):
            raise pickle.UnpicklingError("it holds something else")
        return found


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _OTHERS or _is_record(module, name) or _is_dtype(module, name):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is no part of a checkpoint")


def _is_record(module: str, name: str) -> bool:
    """A dataclass or enumeration of DCP's own."""
    found = getattr(metadata, name, None)
    return module == metadata.__name__ == getattr(found, "__module__", None)


def _is_dtype(module: str, name: str) -> bool:
    return module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)


def tensor_sizes(checkpoint: Path | str) -> dict[str, torch.Size]:
    """The names and sizes of the tensors in a checkpoint."""
    try:
        entries = TensorReader(checkpoint).read_metadata().state_dict_metadata
    except Exception as error:  # whatever unpickling a broken file raises
        raise ConfigError(f"{checkpoint} is not a whole checkpoint: {error}") from error
    return {k: v.size for k, v in entries.items() if isinstance(v, TensorStorageMetadata)}


def load_tensors(checkpoint: Path | str, into: dict[str, torch.Tensor]) -> None:
    """Fill `into`, whole tensors however many ranks have saved them, in this process alone."""
    sizes = tensor_sizes(checkpoint)
    for name, tensor in into.items():
        if sizes.get(name) != tensor.shape:
            there = f"{tuple(sizes[name])}" if name in sizes else "no tensor"
            raise ConfigError(
                f"the checkpoint {checkpoint} has {there} as {name}, and the model that it "
                f"describes {tuple(tensor.shape)}: it is damaged"
            )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        dcp.load(into, storage_reader=TensorReader(checkpoint), no_dist=True)
