"""One command at a time in a folder: two would work in the same folders of jobs."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mixit_titan.errors import ConfigError
from mixit_titan.files import make_folder


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Make the folder that --out names, and refuse it while another process has it."""
    make_folder(out)
    with (out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another mixit-titan runs in {out}: wait for it, or choose another --out"
            ) from None
        except OSError:
            pass  # a file system of a cluster that has no locks
        yield
