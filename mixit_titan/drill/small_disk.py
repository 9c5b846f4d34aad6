"""A disk that is soon full. Only root can mount one."""

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CHUNK = 1 << 20


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[bool]:
    """Whether it is there. Where not, neither is the folder."""
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
    """Also while a process that is about to end still has a file there."""
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
