"""Files and folders that are either complete or absent, and errors on the way to a disk."""

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
    """The folder for files that can be regenerated at any time."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "mixit_titan"


def make_folder(folder: Path, option: str = "--out") -> None:
    """Create the directory that an option names, or raise a ConfigError that names the option."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{option} {str(folder)!r} cannot be created ({error.strerror}): name another folder"
        ) from None


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically: after a crash it has the old content or all of the new."""
    path.parent.mkdir(parents=True, exist_ok=True)

    def write(part: Path) -> None:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    replace_file(path, write)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, indented, and atomically as `write_text` does."""
    write_text(path, json_text(value, indent=2) + "\n")


def json_text(value: Any, **style: Any) -> str:
    """A value as standard JSON: a number that is not finite becomes null, where Python would
    write NaN, which other programs refuse to read. All JSON of this project is written by this
    function."""
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
    """Let `write` fill a temporary file beside `path`, then rename it to `path`. If `write` fails,
    the temporary file is removed."""
    part = path.with_name(f".{path.name}.part")
    try:
        write(part)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder to write into, which is renamed to `path` if the block succeeds. `path`
    must be absent or empty."""
    path = path.resolve()
    part = path.with_name(f".{path.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # left behind by a kill
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
    """Flush a folder to disk: only then are the names of its files durable, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn a failed write in the block (full disk, quota, missing permission) into a
    ConfigError."""
    try:
        yield
    except OSError as error:
        advice = "name another folder" if error.errno in UNUSABLE else MAKE_ROOM
        raise ConfigError(f"cannot write to {folder} ({error.strerror}): {advice}") from error
