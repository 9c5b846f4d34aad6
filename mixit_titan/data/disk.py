"""What can go wrong between a program and its disk."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from mixit_titan.errors import ConfigError

_ELSEWHERE = (NotADirectoryError, FileExistsError, PermissionError, IsADirectoryError)


def sync_folder(folder: Path) -> None:
    """Names, too, are on the disk only after this."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """A full disk, a quota, a folder of somebody else: one sentence."""
    try:
        yield
    except OSError as error:
        if isinstance(error, _ELSEWHERE) or error.errno == errno.EROFS:
            raise ConfigError(
                f"cannot write to {folder} ({error.strerror}): name another folder"
            ) from None
        raise ConfigError(
            f"cannot write to {folder} ({error.strerror}): what is finished stays; make room, and "
            "run the same command again to go on"
        ) from error
