"""A disk that fills up quickly. Only root can mount one."""

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CHUNK = 1 << 20


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[bool]:
    """A small disk at `folder` during the block. Yields False, and leaves no folder, where it
    cannot be mounted."""
    if folder.is_mount():  # left by a drill that was killed
        _unmount(folder)
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        folder.rmdir()
        yield False
        return
    try:
        yield True
    finally:
        _unmount(folder)


def _unmount(folder: Path) -> None:
    """Unmount, even while a process that is about to end still has a file open there."""
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(file: Path) -> None:
    """Write to the file until its disk is full."""
    with file.open("ab", buffering=0) as ballast:
        try:
            while ballast.write(bytes(_CHUNK)):
                pass
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
