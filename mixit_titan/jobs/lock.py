"""One writer for a folder, on whichever machine of a cluster it runs.

`.lock` in the folder says who it is: host, process, job of Slurm, and a number that it counts up
every few seconds. On one machine the kernel knows whether the owner lives (flock). Between machines
a network file system may keep a dead node's lock for a while, or know nothing of the locks of
others: there an owner is dead when its number stands still, or when this is the restart of its job.
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
"""Seconds between two numbers."""
_LEASE = 60.0
"""Seconds after which a number that stands still is that of a dead owner."""
_FORK = 5.0
"""Seconds within which a fork of a dead owner lets go of the lock."""
_BYTES = 512  # always: what is written in place is never cut short

Owner = dict[str, Any]
_OWNER = {
    **{"host": str, "pid": COUNT, "started": (str, None), "job": str, "restart": COUNT},
    "beat": COUNT,
}


@contextlib.contextmanager
def locked(folder: Path, option: str = "--out", *, beside: bool = False) -> Iterator[None]:
    """Make the folder that an option names, and refuse it while another process has it. A disk that
    fills up meanwhile is one sentence. `beside`: the lock is beside a folder that is to appear when
    it is complete."""
    make_folder(folder.absolute().parent if beside else folder, option)
    lock = FolderLock(folder, option, beside=beside)
    try:
        yield
    except (ConfigError, RunFailed, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        if disk_is_full(error):
            raise RunFailed(f"the disk with {folder} is full: {MAKE_ROOM}") from error
        raise
    finally:
        lock.release()


class FolderLock:
    """Held from its construction until `release`, or until its process ends."""

    def __init__(self, folder: Path, option: str, *, beside: bool = False) -> None:
        whole = folder.absolute()
        self._path = whole.with_name(f".{whole.name}.lock") if beside else folder / ".lock"
        self._released, self._guard = threading.Event(), threading.Lock()
        with writing(folder):
            self._file = self._take(folder, option)
            self._say(0)
        os.register_at_fork(after_in_child=self._forget)
        threading.Thread(target=self._beat, daemon=True).start()

    def release(self) -> None:
        with self._guard:  # no beat goes to a file that is closed meanwhile
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
        """End this process where it was suspended for so long that another took the folder: it must
        not write there again, not even a checkpoint."""
        with self._guard:
            owner = self._taken_by()
        if owner is not None:
            print(
                f"mixit-titan: process {owner['pid']} on {owner['host']} took {self._path.parent} "
                f"while this one stood still for over {_LEASE:.0f} s: this one ends",
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
        """Also in a fork, which may outlive the owner and is not to keep the folder."""
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
    """Whether nobody has it; None where the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _flock_after(owner: Owner | None, file: int) -> bool | None:
    """Whether nobody has the lock. A fork of a killed owner may hold it until the kernel first runs
    that fork: give it a moment."""
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
    """None of a file that nobody has written to, or that is not ours."""
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
    """Watch the number of an owner on another machine, by the clock of the file system."""
    with tempfile.TemporaryFile(dir=path.parent) as now, contextlib.suppress(FileNotFoundError):
        now.write(b".")
        now.flush()
        if os.fstat(now.fileno()).st_mtime - path.stat().st_mtime > _LEASE:
            return True
    print(
        f"{path} is of process {owner['pid']} on {owner['host']}: waiting up to {_LEASE:.0f} s for "
        "a sign of life",
        file=sys.stderr,
    )
    end = time.monotonic() + _LEASE
    while time.monotonic() < end:
        time.sleep(min(1.0, _LEASE / 10))
        try:
            file = os.open(path, os.O_RDONLY)  # anew: a network file system then looks again
        except FileNotFoundError:
            return True
        found = _read(file)
        os.close(file)
        if found != owner:
            return False
    return True


def _started(pid: int) -> str | None:
    """When a process of this machine was started; None: there is none, or nobody has yet noticed
    that it has ended."""
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
