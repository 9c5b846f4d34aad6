"""Writes one rank's part of a checkpoint, and reports why it cannot."""

from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import _FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from mixit_titan.runtime.tensor_reader import write_checksums


# Not a subclass of the public FileSystemWriter: DCP lets that one stage asynchronous saves, too.
class CheckpointWriter(_FileSystemWriter):
    """DCP's writer, with the reason of a failed write: a `storage_writer` for `dcp.save` and
    `dcp.async_save`."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's part; if that fails, raise the OSError rather than torch's
        RuntimeError."""
        try:
            return super().write_data(plan, planner)
        except RuntimeError as error:
            # Torch's own error, at the end of a file that could not be written. Its context, which
            # has the reason, would not reach the other ranks.
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise

    def finish(self, metadata: Metadata, results: list[list[WriteResult]], **kwargs: Any) -> None:
        """On the first rank, once all ranks have written their parts: write metadata and
        checksums."""
        super().finish(metadata, results, **kwargs)
        write_checksums(Path(self.path))
