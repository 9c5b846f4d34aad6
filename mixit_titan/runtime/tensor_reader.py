"""Reads tensors and plain data from a checkpoint as they were saved, and nothing else.

DCP pickles a checkpoint's metadata and unpickles what it finds, and a pickle from a stranger can
run code. Torch has no restricted way to read it. So the metadata is read by an unpickler that knows
only the few classes that DCP writes (metadata_pickle.py), and what it refers to is loaded with
`weights_only`: a tensor where a tensor is expected, else a number or the like.

Torch stores a CRC-32 with everything that it saves, and ignores it when it loads: this reader
checks it. The CRC-32 of the metadata is in `checksums.json`.
"""

import contextlib
import io
import pickle
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._traverse import set_element
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import (
    STATE_DICT_TYPE,
    Metadata,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem

from mixit_titan.errors import ConfigError
from mixit_titan.files import write_json
from mixit_titan.reading import WrongFile, json_if_good, read_bytes
from mixit_titan.runtime.metadata_pickle import unpickle_metadata

METADATA = ".metadata"
CHECKSUMS = "checksums.json"
OLDER = "{} has no checksum of its metadata: it was written by an older version"

_NEWER = {"train_state.bad_steps", "dataloader.sources"}
"""Keys that a trainer asks for, and that checkpoints of earlier versions or with other data
lack."""
_METADATA_BYTES = 2**30  # enough for a checkpoint with very many tensors and ranks


class DamagedCheckpoint(ConfigError):
    """A checkpoint is not as it was saved."""

    def __init__(self, checkpoint: Path | str, problem: str) -> None:
        super().__init__(str(checkpoint), problem)
        self.problem = problem

    def __str__(self) -> str:
        return "the checkpoint {} is damaged: {}".format(*self.args)


def load_state(checkpoint: Path | str, into: dict[str, Any], *, no_dist: bool = False) -> None:
    """`dcp.load` that runs no code: on all ranks, or in this process alone with `no_dist`. What is
    wrong is a ConfigError, the same on all ranks."""
    reader = TensorReader(checkpoint)
    if no_dist:
        reader.read_metadata()  # DCP would log a traceback, and say that the metadata is None
    with explained(checkpoint), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        # torchtitan calls get_lr when it loads its schedulers.
        warnings.filterwarnings("ignore", "To get the last learning rate")
        dcp.load(
            into,
            storage_reader=reader,
            planner=PlainPlanner(),
            no_dist=no_dist,
        )


@contextlib.contextmanager
def explained(checkpoint: Path | str) -> Iterator[None]:
    """Turn what is wrong with a checkpoint that DCP loads into a ConfigError."""
    try:
        yield
    except CheckpointException as error:
        causes = [cause for cause, _ in error.failures.values()]
        damage = next((cause for cause in causes if isinstance(cause, DamagedCheckpoint)), None)
        if damage is not None:
            raise damage from error
        if any(isinstance(cause, OSError | MemoryError) for cause in causes):
            raise  # a problem of this machine: the checkpoint may be good
        said = str(causes[0]).strip().split("\n")[0]
        if isinstance(causes[0], pickle.UnpicklingError):
            said = "it stores something that is not a tensor as one"
        raise ConfigError(
            f"the checkpoint {checkpoint} cannot be loaded: {said:.200}. Choose another one"
        ) from error


def load_tensors(checkpoint: Path | str, into: dict[str, torch.Tensor]) -> None:
    """Fill `into` with complete tensors, however many ranks have saved them, in this process
    alone."""
    check_sizes(checkpoint, into)
    load_state(checkpoint, into, no_dist=True)


def check_sizes(checkpoint: Path | str, into: dict[str, torch.Tensor]) -> None:
    """Raise a ConfigError unless these are the tensors of a checkpoint."""
    sizes = tensor_sizes(checkpoint)
    for name, tensor in into.items():
        if sizes.get(name) != tensor.shape:
            there = f"{tuple(sizes[name])}" if name in sizes else "no tensor"
            raise ConfigError(
                f"the checkpoint {checkpoint} has {there} as {name}, but the model that it "
                f"describes has {tuple(tensor.shape)}: it is damaged"
            )


def tensor_sizes(checkpoint: Path | str) -> dict[str, torch.Size]:
    """The names and sizes of the tensors in a checkpoint."""
    entries = TensorReader(checkpoint).read_metadata().state_dict_metadata
    return {k: v.size for k, v in entries.items() if isinstance(v, TensorStorageMetadata)}


def write_checksums(checkpoint: Path) -> None:
    """Write the checksum of the metadata of a checkpoint that is on disk."""
    content = (checkpoint / METADATA).read_bytes()
    write_json(checkpoint / CHECKSUMS, {METADATA: _checksum(content)})


def is_as_saved(file: IO[bytes]) -> bool:
    """Whether the content of a file that `torch.save` wrote matches the checksums in it."""
    size = file.seek(0, io.SEEK_END)
    try:
        with zipfile.ZipFile(file) as records:
            found = records.infolist()
            # Torch compresses nothing, so anything compressed may be a zip bomb.
            if any(record.compress_type != zipfile.ZIP_STORED for record in found):
                return False
            if sum(record.file_size for record in found) > size:
                return False
            return records.testzip() is None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, OSError):
        return False


def has_checksums(checkpoint: Path | str) -> bool:
    """Whether the checkpoint was written by a version that covers all of it with checksums."""
    return (Path(checkpoint) / CHECKSUMS).exists()


class TensorReader(dcp.FileSystemReader):
    """DCP's reader, with metadata that runs no code and pieces whose checksums are verified: a
    `storage_reader` for `dcp.load`."""

    # Without DCP's further arguments, which ask for the metadata of this rank if there is no other.
    def read_metadata(self) -> Metadata:
        """The metadata of the checkpoint; raises DamagedCheckpoint."""
        folder = Path(self.path)
        try:
            content = read_bytes(folder / METADATA, limit=_METADATA_BYTES)
        except FileNotFoundError:
            raise DamagedCheckpoint(folder, f"it has no {METADATA}") from None
        except WrongFile as wrong:
            problem = f"its {METADATA} cannot be read ({wrong.problem})"
            raise DamagedCheckpoint(folder, problem) from None
        if has_checksums(folder) and _expected(folder) != _checksum(content):
            raise DamagedCheckpoint(folder, f"its {METADATA} is not as it was saved")
        try:
            found = unpickle_metadata(content)
            if not isinstance(found, Metadata):
                raise pickle.UnpicklingError("it holds something else")
            _check_metadata(found)
        except Exception as error:  # whatever unpickling a broken file raises
            said = str(error) or type(error).__name__
            raise DamagedCheckpoint(folder, f"its {METADATA} cannot be read ({said})") from error
        return found

    def _slice_file(self, file: IO[bytes], sinfo: Any) -> IO[bytes]:
        """A verified piece of a file: one tensor of one rank, or one value. DCP calls it."""
        file.seek(sinfo.offset)
        piece = io.BytesIO(file.read(sinfo.length))
        if not is_as_saved(piece):
            place = f"bytes {sinfo.offset} to {sinfo.offset + sinfo.length}"
            problem = f"{place} of {sinfo.relative_path} are not as they were saved"
            raise DamagedCheckpoint(self.path, problem)
        piece.seek(0)
        return piece


class PlainPlanner(dcp.DefaultLoadPlanner):
    """DCP's planner, except that it never unpickles what a checkpoint declares as bytes. What older
    checkpoints lack keeps its value."""

    def set_up_planner(
        self,
        state_dict: STATE_DICT_TYPE,
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Leave out what older checkpoints lack."""
        super().set_up_planner(state_dict, metadata, is_coordinator)
        for name in _NEWER.difference(metadata.state_dict_metadata):
            self.state_dict.pop(name, None)

    def create_local_plan(self) -> LoadPlan:
        """Refuse a plan that would unpickle something in place of a tensor."""
        plan = super().create_local_plan()
        for item in plan.items:
            name = item.dest_index.fqn
            if item.type == LoadItemType.BYTE_IO and isinstance(
                self.state_dict[name], torch.Tensor
            ):
                raise ConfigError(f"its {name} is not a tensor")
        return plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Load a value that is plain data of the expected type."""
        name = read_item.dest_index.fqn
        try:
            loaded = torch.load(value, map_location="cpu", weights_only=True)
        except Exception as error:  # whatever unpickling a broken file raises
            raise ConfigError(f"its {name} is not plain data") from error
        if _kind(loaded) != _kind(self.state_dict[name]):
            raise ConfigError(f"its {name} is a {type(loaded).__name__}")
        set_element(self.original_state_dict, self.mappings[name], loaded)


def _kind(value: Any) -> Any:
    """The kind of a value. All numbers are alike, and so is None (an unset flag of an
    optimizer)."""
    if isinstance(value, list | tuple):
        return [_kind(each) for each in value]
    return float if isinstance(value, bool | int | float | None) else type(value)


def _check_metadata(found: Metadata) -> None:
    """Refuse DCP's own records with invalid content, because they may hold anything."""
    for piece in found.storage_data.values():
        if Path(piece.relative_path).name != piece.relative_path:
            raise pickle.UnpicklingError("it names files in another folder")
        for number in (piece.offset, piece.length):
            if type(number) is not int or number < 0:
                raise pickle.UnpicklingError("an offset in a file is not a number")
    for name, entry in found.state_dict_metadata.items():
        tensor = isinstance(entry, TensorStorageMetadata)
        if not isinstance(name, str) or (tensor and not isinstance(entry.size, torch.Size)):
            raise pickle.UnpicklingError(f"{name!r:.60} is not a tensor with a name and a size")


def _checksum(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"


def _expected(folder: Path) -> str | None:
    found = json_if_good(folder / CHECKSUMS, {METADATA: str})
    return None if found is None else found[METADATA]
