"""The memory of this machine. Linux promises more than there is, and later kills whoever took it at
its word: what cannot fit is refused before it is asked for."""

import os
import re
from pathlib import Path

from mixit_titan.errors import ConfigError

_ROOT = Path("/")


def host_memory() -> int:
    """Bytes that this process may have: the machine's, or the limit of its container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(total, memory_limit(_ROOT) or total)


def check_host_memory(needed: int, advice: str) -> None:
    """Refuse what needs more bytes than there are at all."""
    there = host_memory()
    if needed > there:
        raise ConfigError(
            f"it needs at least {needed / 2**30:,.1f} GiB and this machine has "
            f"{there / 2**30:,.1f} GiB: {advice}"
        )


def text_of(path: Path) -> str:
    """What a file of the system says; nothing where there is none."""
    try:
        return path.read_text()
    except OSError:
        return ""


def cgroup_values(root: Path, name: str) -> list[list[str]]:
    """In version 2, the words of a file in the cgroup of this process and in those above it."""
    mounted = root / "sys/fs/cgroup"
    own = re.search(r"^0::/(.*)$", text_of(root / "proc/self/cgroup"), re.M)
    folder = mounted / (own[1] if own else "")
    above = [folder, *(parent for parent in folder.parents if mounted in (parent, *parent.parents))]
    return [words for each in above if (words := text_of(each / name).split())]


def memory_limit(root: Path) -> int | None:
    """Bytes that the cgroup of this process, or one above it, may have; None: no limit."""
    found = [int(words[0]) for words in cgroup_values(root, "memory.max") if words[0].isdecimal()]
    first = text_of(root / "sys/fs/cgroup/memory/memory.limit_in_bytes").strip()  # version 1
    if first.isdecimal() and int(first) < 2**60:  # above it: its word for none
        found.append(int(first))
    return min(found, default=None)
