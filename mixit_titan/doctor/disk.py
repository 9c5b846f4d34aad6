"""The disk that runs are written to."""

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from mixit_titan.doctor.check import Check, anonymous, judge

MIB, GIB = 2**20, 2**30
_SIZE = 64 * MIB
_PIECE = 4 * MIB
_SECONDS = 10
_SLOW = 100 * MIB
_LITTLE = 20 * GIB


@dataclass(frozen=True)
class Disk:
    """What was measured."""

    folder: str
    """The folder's name, anonymized."""
    error: str | None = None
    """Why it is not writable, or None."""
    free: int = 0
    speed: float = 0.0
    """Bytes per second until they are on disk."""


def read_disk(folder: Path) -> Disk:
    """Write up to 64 MiB into the folder, or where it would be created, and remove them again."""
    shown, place = anonymous(str(folder)), folder.absolute()
    while not place.exists():
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            speed = _measure(file.fileno())
        return Disk(shown, free=shutil.disk_usage(place).free, speed=speed)
    except OSError as error:
        return Disk(shown, error=error.strerror or type(error).__name__)


def _measure(descriptor: int) -> float:
    piece, written, begin = os.urandom(_PIECE), 0, time.perf_counter()
    while written < _SIZE and time.perf_counter() - begin < _SECONDS:
        written += os.write(descriptor, piece)
    os.fsync(descriptor)
    return written / (time.perf_counter() - begin)


def check_disk(facts: Disk) -> Check:
    """Judge free space and speed."""
    if facts.error is not None:
        advice = "name a writable folder: --folder here, --out or --dump_folder later"
        return judge("disk", f"cannot write to {facts.folder}: {facts.error}", wrong=advice)
    fact = f"{facts.folder}: {facts.speed / MIB:,.0f} MiB/s, {facts.free / GIB:,.0f} GiB free"
    advice = None
    if facts.free < _LITTLE:
        advice = "a full checkpoint of 1b takes 15 GiB: make room, or set checkpoint.keep_latest_k"
    elif facts.speed < _SLOW:
        advice = "training waits for its checkpoints: use another disk, or set "
        advice += "checkpoint.async_mode = 'async'"
    return judge("disk", fact, warning=advice)
