"""One command at a time in a folder: two would work in the same folders of jobs."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from mixit_titan.errors import ConfigError
from mixit_titan.files import make_folder, writing


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """Make the folder that --out names, and refuse it while another process has it."""
    make_folder(out)
    with contextlib.ExitStack() as stack:
        with writing(out):
            lock = stack.enter_context((out / ".lock").open("w"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another mixit-titan runs in {out}: wait for it, or choose another --out"
            ) from None
        except OSError:
            pass  # a file system of a cluster that has no locks
        yield
