"""The memory of this machine. Linux promises more than there is, and later kills whoever took it at
its word: what cannot fit is refused before it is asked for."""

import contextlib
import os
from pathlib import Path

from mixit_titan.errors import ConfigError

_CGROUP = Path("/sys/fs/cgroup/memory.max")


def host_memory() -> int:
    """Bytes that this process may have: the machine's, or the limit of its container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # no limit, or none that is a number
        total = min(total, int(_CGROUP.read_text()))
    return total


def check_host_memory(needed: int, advice: str) -> None:
    """Refuse what needs more bytes than there are at all."""
    there = host_memory()
    if needed > there:
        raise ConfigError(
            f"it needs at least {needed / 2**30:,.1f} GiB and this machine has "
            f"{there / 2**30:,.1f} GiB: {advice}"
        )
