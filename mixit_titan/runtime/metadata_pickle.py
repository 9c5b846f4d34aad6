"""Reads the pickle in which DCP stores what a checkpoint contains, without running or changing
anything.

A pickle can name classes and functions, call them, and set attributes of what it names, even of a
class. Here it can name only what DCP writes, and none of that has side effects. A class that a
pickle has changed is restored, and the pickle refused.
"""

import io
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.checkpoint import metadata
from torch.distributed.checkpoint.filesystem import _StorageInfo

_RECORDS = {
    (cls.__module__, cls.__name__): cls
    for cls in (
        *(metadata.Metadata, metadata.MetadataIndex, metadata.StorageMeta),
        *(metadata.TensorStorageMetadata, metadata.BytesStorageMetadata),
        *(metadata.TensorProperties, metadata.ChunkStorageMetadata, _StorageInfo),
    )
}
"""DCP's own dataclasses."""
_CALLED = {
    (metadata.__name__, "_MEM_FORMAT_ENCODING"),
    ("torch.serialization", "_get_layout"),
    ("torch", "Size"),
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),  # its name in Python 3.13
}


def unpickle_metadata(content: bytes) -> Any:
    """The content of the pickle. Raises whatever unpickling a broken one raises, and an
    UnpicklingError if it names or changes what is not part of a checkpoint."""
    with _unchanged():
        return _MetadataUnpickler(io.BytesIO(content)).load()


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _RECORDS:
            return _RECORDS[module, name]
        if (module, name) in _CALLED:
            called = super().find_class(module, name)
            return lambda *arguments: called(
                *arguments
            )  # a pickle could change the function itself
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is not part of a checkpoint")


@contextmanager
def _unchanged() -> Iterator[None]:
    """Restore the classes after the block: creating an object takes the class itself, whose
    attributes a pickle could set."""
    before = {cls: dict(vars(cls)) for cls in _RECORDS.values()}
    try:
        yield
    finally:
        changed = [cls for cls, own in before.items() if _restore(cls, own)]
        if changed:
            raise pickle.UnpicklingError(f"it changes {changed[0].__name__}")


def _restore(cls: type, own: dict[str, Any]) -> bool:
    """Restore a class; whether anything had changed."""
    now = dict(vars(cls))
    for name in now.keys() - own.keys():
        delattr(cls, name)
    replaced = [name for name, value in own.items() if now.get(name) is not value]
    for name in replaced:
        setattr(cls, name, own[name])
    return bool(replaced) or now.keys() != own.keys()
