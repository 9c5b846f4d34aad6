"""Files and folders that are whole or not there."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


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
