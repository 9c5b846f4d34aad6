"""The metadata of a checkpoint is read as DCP would read it, and a pickle changes nothing."""

import importlib
import pickle
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from mixit_titan.runtime.metadata_pickle import unpickle_metadata

DCP = "torch.distributed.checkpoint.metadata"


def test_what_dcp_writes_is_read_as_dcp_reads_it(tmp_path: Path) -> None:
    state = {"weight": torch.ones(3, 2, dtype=torch.bfloat16), "step": 3}
    dcp.save(state, checkpoint_id=str(tmp_path), no_dist=True)
    content = (tmp_path / ".metadata").read_bytes()
    found = unpickle_metadata(content)
    assert found == pickle.loads(content)
    assert found.state_dict_metadata["weight"].size == torch.Size([3, 2])


def _assigning(module: str, name: str, attribute: str) -> bytes:
    """Sets an attribute of what the module has under that name to 1: GLOBAL (None, {..}) BUILD."""
    pushed = f"{len(attribute):02x}"
    state = b"N}(X" + bytes.fromhex(pushed) + b"\0\0\0" + attribute.encode() + b"K\x01u\x86"
    return b"\x80\x04c" + f"{module}\n{name}\n".encode() + state + b"b."


@pytest.mark.parametrize(
    ("module", "name", "attribute"),
    [
        (DCP, "Metadata", "new"),
        (DCP, "Metadata", "__eq__"),
        (DCP, "ChunkStorageMetadata", "__init__"),
        (DCP, "_MEM_FORMAT_ENCODING", "new"),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo", "__init__"),
        ("torch.serialization", "_get_layout", "new"),
        ("pathlib", "PosixPath", "is_file"),
    ],
)
def test_a_pickle_changes_no_class(module: str, name: str, attribute: str) -> None:
    changed = getattr(importlib.import_module(module), name)
    before = dict(vars(changed))
    content = _assigning(module, name, attribute)
    refused = False
    try:
        unpickle_metadata(content)
    except pickle.UnpicklingError as error:
        refused = str(error) == f"it changes {name}"
    assert dict(vars(changed)) == before
    assert refused or name in ("_MEM_FORMAT_ENCODING", "_get_layout", "PosixPath")


@pytest.mark.parametrize("name", ["Metadata.__init__", "STATE_DICT_TYPE", "os"])
def test_only_what_dcp_writes_has_a_name(name: str) -> None:
    with pytest.raises(pickle.UnpicklingError, match="which is not part of a checkpoint"):
        unpickle_metadata(b"\x80\x04c" + f"{DCP}\n{name}\n".encode() + b".")
