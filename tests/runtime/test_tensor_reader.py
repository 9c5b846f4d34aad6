"""What a checkpoint says about itself is not trusted."""

import io
import random
import zipfile
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import Metadata

from mixit_titan.errors import ConfigError
from mixit_titan.runtime.checkpoint_files import problem_of
from mixit_titan.runtime.tensor_reader import is_as_saved, load_state

from .strangers import change_metadata


@pytest.mark.parametrize("name", ["../secret.distcp", "/etc/passwd"])
def test_no_file_of_another_folder_is_read(tmp_path: Path, name: str) -> None:
    checkpoint, state = tmp_path / "checkpoint", {"weight": torch.ones(3)}
    dcp.save(state, checkpoint_id=str(checkpoint), no_dist=True)
    (checkpoint / "__0_0.distcp").rename(tmp_path / "secret.distcp")

    def elsewhere(metadata: Metadata) -> None:
        for piece in metadata.storage_data.values():
            piece.relative_path = name

    change_metadata(checkpoint, elsewhere)
    assert "names files in another folder" in problem_of(checkpoint)
    with pytest.raises(ConfigError, match="it names files in"):
        load_state(checkpoint, state, no_dist=True)


def _zipped(copies: int, compression: int) -> io.BytesIO:
    """A file whose list names the same record more than once."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as records:
        records.writestr("data.pkl", random.Random(0).randbytes(10_000))
        records.filelist *= copies
    return file


def test_what_is_compressed_or_larger_than_its_file_is_not_read() -> None:
    assert is_as_saved(_zipped(1, zipfile.ZIP_STORED))
    assert not is_as_saved(_zipped(1, zipfile.ZIP_DEFLATED))
    assert not is_as_saved(_zipped(1000, zipfile.ZIP_STORED))
