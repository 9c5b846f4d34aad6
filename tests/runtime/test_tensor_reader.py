"""What a checkpoint says about itself is not trusted."""

import io
import logging
import random
import warnings
import zipfile
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import Metadata
from torchtitan.components.optimizer import LRSchedulersContainer

from mixit_titan.errors import ConfigError
from mixit_titan.runtime.checkpoint_files import problem_of
from mixit_titan.runtime.tensor_reader import DamagedCheckpoint, is_as_saved, load_state

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


def test_damaged_metadata_is_named_and_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = {"weight": torch.ones(3)}
    dcp.save(state, checkpoint_id=str(tmp_path), no_dist=True)
    (tmp_path / ".metadata").write_bytes(b"")
    caplog.clear()
    with pytest.raises(DamagedCheckpoint, match=r"its .metadata cannot be read"):
        load_state(tmp_path, state, no_dist=True)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_loading_a_schedule_warns_of_nothing(tmp_path: Path) -> None:
    optimizer = torch.optim.SGD([torch.ones(3, requires_grad=True)], lr=0.5)
    config = LRSchedulersContainer.Config(warmup_steps=2)
    schedule = config.build(optimizers=[optimizer], training_steps=10)
    state = {"lr_scheduler": schedule}
    dcp.save(state, checkpoint_id=str(tmp_path), no_dist=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_state(tmp_path, state, no_dist=True)
    assert schedule.state_dict() == {"last_epoch": 0}
