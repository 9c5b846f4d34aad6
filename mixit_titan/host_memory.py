"""The memory of this machine. Linux promises more than there is and later kills whoever uses it, so
what cannot fit is refused before it is allocated."""

import os
import re
from pathlib import Path

from mixit_titan.errors import ConfigError

_ROOT = Path("/")


def host_memory() -> int:
    """Bytes that this process may use: the machine's memory, or the limit of its container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(total, memory_limit(_ROOT) or total)


def check_host_memory(needed: int, advice: str) -> None:
    """Raise a ConfigError, with the advice, if more bytes are needed than the machine has."""
    there = host_memory()
    if needed > there:
        raise ConfigError(
            f"it needs at least {needed / 2**30:,.1f} GiB and this machine has "
            f"{there / 2**30:,.1f} GiB: {advice}"
        )


def text_of(path: Path) -> str:
    """The content of one of the system's files, or "" where it is absent."""
    try:
        return path.read_text()
    except OSError:
        return ""


def cgroup_values(root: Path, name: str) -> list[list[str]]:
    """For cgroups of version 2: the words of a file in the cgroup of this process and in each above
    it."""
    mounted = root / "sys/fs/cgroup"
    own = re.search(r"^0::/(.*)$", text_of(root / "proc/self/cgroup"), re.M)
    folder = mounted / (own[1] if own else "")
    above = [folder, *(parent for parent in folder.parents if mounted in (parent, *parent.parents))]
    return [words for each in above if (words := text_of(each / name).split())]


def memory_limit(root: Path) -> int | None:
    """The smallest memory limit, in bytes, of the cgroup of this process and of those above it;
    None if there is none."""
    found = [int(words[0]) for words in cgroup_values(root, "memory.max") if words[0].isdecimal()]
    first = text_of(root / "sys/fs/cgroup/memory/memory.limit_in_bytes").strip()  # version 1
    if first.isdecimal() and int(first) < 2**60:  # a larger value means no limit
        found.append(int(first))
    return min(found, default=None)
