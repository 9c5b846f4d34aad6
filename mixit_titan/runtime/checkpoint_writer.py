"""Writes the part of a rank to a checkpoint, and says why it cannot."""

from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import _FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from mixit_titan.runtime.tensor_reader import write_checksums


# Not of the public FileSystemWriter: DCP lets that one stage asynchronous saves too.
class CheckpointWriter(_FileSystemWriter):
    """DCP's writer. `storage_writer` of `dcp.save` and `dcp.async_save`."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        try:
            return super().write_data(plan, planner)
        except RuntimeError as error:
            # Torch's own, at the end of a file that could not be written. The error behind it,
            # which has the reason, would not get to the other ranks.
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise

    def finish(self, metadata: Metadata, results: list[list[WriteResult]], **kwargs: Any) -> None:
        """On the first rank, when all have written theirs."""
        super().finish(metadata, results, **kwargs)
        write_checksums(Path(self.path))
