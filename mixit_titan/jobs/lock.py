"""One writer per folder, on whichever machine of a cluster it runs.

`.lock` in the folder says who it is: host, process, Slurm job, and a counter that increases every
few seconds. On one machine the kernel knows whether the owner is alive (flock). Between machines, a
network file system may keep a dead node's lock for a while, or not share locks at all: there an
owner is dead if its counter stops, or if this process is a restart of its job.
"""

import contextlib
import fcntl
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mixit_titan.errors import MAKE_ROOM, ConfigError, RunFailed, disk_is_full
from mixit_titan.files import json_text, make_folder, writing
from mixit_titan.json_form import COUNT, WrongForm, parse_json
from mixit_titan.reading import regular

_BEAT = 5.0
"""Seconds between two counts."""
_LEASE = 60.0
"""Seconds without a count after which an owner is considered dead."""
_FORK = 5.0
"""Seconds within which a fork of a dead owner releases the lock."""
_BYTES = 512  # a constant size: what is overwritten in place is never truncated

Owner = dict[str, Any]
_OWNER = {
    **{"host": str, "pid": COUNT, "started": (str, None), "job": str, "restart": COUNT},
    "beat": COUNT,
}


@contextlib.contextmanager
def locked(folder: Path, option: str = "--out", *, beside: bool = False) -> Iterator[None]:
    """Create the folder that an option names, and refuse it while another process uses it. A disk
    that fills up in the block is an error of one sentence. With `beside`, the lock is beside the
    folder, which will only exist once it is complete."""
    make_folder(folder.absolute().parent if beside else folder, option)
    lock = FolderLock(folder, option, beside=beside)
    try:
        yield
    except (ConfigError, RunFailed, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        if disk_is_full(error):
            raise RunFailed(f"the disk of {folder} is full: {MAKE_ROOM}") from error
        raise
    finally:
        lock.release()


class FolderLock:
    """A lock on a folder, held until `release` or until the process ends."""

    def __init__(self, folder: Path, option: str, *, beside: bool = False) -> None:
        full = folder.absolute()
        self._path = full.with_name(f".{full.name}.lock") if beside else folder / ".lock"
        self._released, self._guard = threading.Event(), threading.Lock()
        with writing(folder):
            self._file = self._take(folder, option)
            self._say(0)
        os.register_at_fork(after_in_child=self._forget)
        threading.Thread(target=self._beat, daemon=True).start()

    def release(self) -> None:
        """Release the lock and delete its file."""
        with self._guard:  # so that no beat is written to a closed file
            if self._file != -1:
                self._released.set()
                if self._taken_by() is None:
                    with contextlib.suppress(OSError):
                        self._path.unlink()
                self._forget()

    def _take(self, folder: Path, option: str) -> int:
        while True:
            file = regular(str(self._path), os.O_RDWR | os.O_CREAT)
            owner = _read(file)
            free = _flock_after(owner, file)
            if not _is_dead(owner, free, self._path):
                os.close(file)
                who = "" if owner is None else f" (process {owner['pid']} on {owner['host']})"
                raise ConfigError(
                    f"another mixit-titan{who} is writing to {folder}: wait for it or stop it, or "
                    f"choose another {option}"
                )
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), self._path.stat()):
                    return file
            os.close(file)  # its owner has just released it

    def _say(self, beat: int) -> None:
        line = json_text(_ourselves() | {"beat": beat}).encode()[: _BYTES - 1]
        with self._guard:
            if self._file != -1:
                os.pwrite(self._file, line.ljust(_BYTES - 1) + b"\n", 0)
                os.fsync(self._file)  # so that other machines see it

    def _beat(self) -> None:
        beat = 0
        while not self._released.wait(_BEAT):
            beat += 1
            with contextlib.suppress(OSError):
                self._leave_to_another()
                self._say(beat)

    def _leave_to_another(self) -> None:
        """End this process if it was suspended for so long that another took the folder: it must
        not write there again, not even a checkpoint."""
        with self._guard:
            owner = self._taken_by()
        if owner is not None:
            print(
                f"mixit-titan: process {owner['pid']} on {owner['host']} took {self._path.parent} "
                f"while this process was suspended for over {_LEASE:.0f} s: this process ends",
                file=sys.stderr,
                flush=True,
            )
            os._exit(1)

    def _taken_by(self) -> Owner | None:
        """Who has written to the lock of this process."""
        owner, ours = None if self._file == -1 else _read(self._file), _ourselves()
        taken = owner is not None and any(owner[key] != ours[key] for key in ours)
        return owner if taken else None

    def _forget(self) -> None:
        """Close the file; also called in a fork, which may outlive the owner and must not keep the
        lock."""
        if self._file != -1:
            os.close(self._file)
            self._file = -1


def owner_lives(folder: Path) -> bool | None:
    """Whether a process is writing to a folder; None: nobody holds or has left a lock. It only
    looks, so that it never stands in the way of an owner."""
    path = folder / ".lock"
    try:
        file = regular(str(path), os.O_RDONLY)
    except (OSError, ConfigError):
        return None
    try:
        owner, age = _read(file), time.time() - os.fstat(file).st_mtime
    finally:
        os.close(file)
    if owner is not None and owner["host"] == socket.gethostname():
        return _started(owner["pid"]) == owner["started"]
    return age < _LEASE


def _flock(file: int) -> bool | None:
    """Whether nobody else has the lock; None if the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _flock_after(owner: Owner | None, file: int) -> bool | None:
    """Whether nobody else has the lock. A fork of a killed owner may hold it until the kernel first
    schedules the fork: give it a moment."""
    deadline = time.monotonic() + _FORK
    while (free := _flock(file)) is False and time.monotonic() < deadline:
        if owner is None or owner["host"] != socket.gethostname():
            break
        if _started(owner["pid"]) == owner["started"]:
            break
        time.sleep(0.02)
    return free


def _ourselves() -> Owner:
    job = os.environ.get("SLURM_JOB_ID", "")
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
        "job": job,
        "restart": int(os.environ.get("SLURM_RESTART_COUNT", "0")) if job else 0,
    }


def _read(file: int) -> Owner | None:
    """The owner in a lock file; None if nobody has written to it or it is not ours."""
    try:
        return parse_json(os.pread(file, _BYTES, 0), _OWNER)
    except (OSError, WrongForm):
        return None


def _is_dead(owner: Owner | None, free: bool | None, path: Path) -> bool:
    if owner is None:
        return free is not False
    ours = _ourselves()
    if owner["host"] == ours["host"]:
        return _started(owner["pid"]) != owner["started"] if free is None else free
    if owner["job"] == ours["job"] and owner["restart"] < ours["restart"]:
        return True
    return _stands_still(owner, path)


def _stands_still(owner: Owner, path: Path) -> bool:
    """Watch the counter of an owner on another machine, by the clock of the file system."""
    with tempfile.TemporaryFile(dir=path.parent) as now, contextlib.suppress(FileNotFoundError):
        now.write(b".")
        now.flush()
        if os.fstat(now.fileno()).st_mtime - path.stat().st_mtime > _LEASE:
            return True
    print(
        f"{path} belongs to process {owner['pid']} on {owner['host']}: waiting up to "
        f"{_LEASE:.0f} s for a sign of life",
        file=sys.stderr,
    )
    end = time.monotonic() + _LEASE
    while time.monotonic() < end:
        time.sleep(min(1.0, _LEASE / 10))
        try:
            file = os.open(path, os.O_RDONLY)  # reopened, so that a network file system looks again
        except FileNotFoundError:
            return True
        found = _read(file)
        os.close(file)
        if found != owner:
            return False
    return True


def _started(pid: int) -> str | None:
    """When a process of this machine was started; None if it does not exist, or has ended without
    being waited for."""
    try:
        state, *others = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else others[18]
    except (OSError, IndexError):
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return "unknown"  # as on macOS
