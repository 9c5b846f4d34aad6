"""Files and folders that are complete or not there, and what can go wrong on the way to a disk."""

import contextlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mixit_titan.errors import MAKE_ROOM, UNUSABLE, ConfigError


def cache_folder() -> Path:
    """Where things are kept that can be made again."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "mixit_titan"


def make_folder(folder: Path, option: str = "--out") -> None:
    """Create the directory that an option names, or refuse it in one sentence."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{option} {str(folder)!r} cannot be made: {error.strerror}") from None


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)

    def write(part: Path) -> None:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    replace_file(path, write)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json_text(value, indent=2) + "\n")


def json_text(value: Any, **style: Any) -> str:
    """JSON as the standard has it: a number that is not finite is null, where Python would write
    NaN, which other programs refuse to read. All that this project writes goes through here."""
    try:
        return json.dumps(value, allow_nan=False, **style)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, **style)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, which becomes `path` when all of it is there. What
    it could not fill gives its room back."""
    part = path.with_name(f".{path.name}.part")
    try:
        write(part)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write into, which becomes `path` when all went well. `path` is not there, or
    empty."""
    path = path.resolve()
    part = path.with_name(f".{path.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # what a kill left behind
    part.mkdir(parents=True)
    try:
        yield part
        for file in part.iterdir():
            with file.open("rb") as written:
                os.fsync(written.fileno())
        part.replace(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Names, too, are on the disk only after this."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """A full disk, a quota, a folder of somebody else: one sentence."""
    try:
        yield
    except OSError as error:
        advice = "name another folder" if error.errno in UNUSABLE else MAKE_ROOM
        raise ConfigError(f"cannot write to {folder} ({error.strerror}): {advice}") from error
