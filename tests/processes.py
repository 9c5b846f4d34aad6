"""Which processes are still there. One that has ended and that nobody has waited for is not: the
first process of a container takes seconds to notice the orphans that it gets."""

import contextlib
import os
import time
from pathlib import Path


def _state_and_group(pid: int) -> tuple[str, int]:
    state, _, group, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return state, int(group)


def is_alive(pid: int) -> bool:
    try:
        return _state_and_group(pid)[0] not in "ZX"
    except OSError:
        return False


def is_group_alive(group: int) -> bool:
    """Whether a process of the group is."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended since
            state, its_group = _state_and_group(int(entry.name))
            if its_group == group and state not in "ZX":
                return True
    return not Path("/proc/self").exists()  # as on macOS, where zombies count


def assert_groups_end(groups: list[int], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while left := [group for group in groups if is_group_alive(group)]:
        assert time.monotonic() < deadline, f"process groups {left} are left"
        time.sleep(0.02)
