"""Reads files that others may have written or replaced: without blocking, up to a size limit, and
only in the declared form."""

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Any

from mixit_titan.errors import ConfigError
from mixit_titan.json_form import Form, WrongForm, parse_json

REMOVE = "remove it, or name another folder"
_LARGEST = 2**26  # bytes of a file that is read at once
_LONGEST = 2**16  # bytes of a line of JSON
_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class WrongFile(ConfigError):
    """A file is not what it should be."""

    def __init__(self, path: Path | str, problem: str, advice: str = REMOVE) -> None:
        super().__init__(f"{path} cannot be used ({problem}): {advice}")
        self.path, self.problem, self.advice = path, problem, advice

    def __reduce__(self) -> tuple:
        """Pickle by the arguments, because it is sent from rank to rank."""
        return type(self), (self.path, self.problem, self.advice)


def regular(path: str, flags: int) -> int:
    """An `opener` for `open` that never waits for the other end of a pipe and raises WrongFile for
    everything that is not a regular file."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.ENXIO, errno.ELOOP):
            raise
        problem = "it is a pipe or a socket" if error.errno == errno.ENXIO else error.strerror
        raise WrongFile(path, problem) from None
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise WrongFile(path, f"it is {_KINDS.get(kind, 'no file')}")
    return descriptor


def read_bytes(path: Path | str, *, advice: str = REMOVE, limit: int = _LARGEST) -> bytes:
    """The complete content of a file. Raises FileNotFoundError where there is none, and a WrongFile
    with the advice where there is something else or more than `limit` bytes."""
    try:
        with open(path, "rb", opener=regular) as file:
            large = os.fstat(file.fileno()).st_size > limit
            content = b"" if large else file.read(limit + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
    except WrongFile as wrong:
        raise WrongFile(path, wrong.problem, advice) from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in its name
        raise WrongFile(path, getattr(error, "strerror", None) or str(error), advice) from None
    if large or len(content) > limit:
        raise WrongFile(path, f"it is larger than {limit:,} bytes", advice)
    return content


def read_end(path: Path | str, limit: int = _LONGEST) -> bytes:
    """The last bytes of a log, however long it is; b"" where there is no regular file."""
    with contextlib.suppress(OSError, WrongFile), open(path, "rb", opener=regular) as file:
        file.seek(-min(limit, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return file.read(limit)
    return b""


def read_text(path: Path | str, *, advice: str = REMOVE, limit: int = _LARGEST) -> str:
    """Like `read_bytes`, decoded as UTF-8 without the byte order mark that some editors write."""
    try:
        return read_bytes(path, advice=advice, limit=limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"it is not UTF-8: {error.reason} at byte {error.start:,}"
        raise WrongFile(path, problem, advice) from None


def read_json(path: Path | str, form: Form, *, advice: str = REMOVE) -> Any:
    """The value of a JSON file that must have the declared form. Errors are those of
    `read_bytes`."""
    content = read_bytes(path, advice=advice)
    try:
        return parse_json(content, form)
    except WrongForm as wrong:
        raise WrongFile(path, str(wrong), advice) from None


def json_if_good(path: Path | str, form: Form) -> Any | None:
    """The value of a JSON file, or None if it is absent or not of that form: for files that are
    then regenerated."""
    with contextlib.suppress(FileNotFoundError, WrongFile):
        return read_json(path, form)


def text_if_good(path: Path | str, *, limit: int = _LARGEST) -> str | None:
    """The text of a file, or None if it cannot be read as text."""
    with contextlib.suppress(FileNotFoundError, WrongFile):
        return read_text(path, limit=limit)


def read_json_lines(path: Path | str, form: Form) -> list[Any]:
    """The lines of a file that is appended to, up to the first that is not of that form: a kill may
    have truncated the last one. An absent file has no lines."""
    lines = []
    missing = contextlib.suppress(FileNotFoundError, NotADirectoryError)
    with missing, open(path, "rb", opener=regular) as file, contextlib.suppress(WrongForm):
        while line := file.readline(_LONGEST):
            lines.append(parse_json(line, form))
    return lines


def check_kinds(folder: Path, *, files: tuple[str, ...], folders: tuple[str, ...] = ()) -> None:
    """Refuse a folder to write into if one of these names is taken by something of another kind."""
    for kind, names in ((stat.S_IFREG, files), (stat.S_IFDIR, folders)):
        for name in names:
            try:
                there = stat.S_IFMT((folder / name).stat().st_mode)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise WrongFile(folder / name, error.strerror) from None
            if there != kind:
                raise WrongFile(folder / name, f"it is {_KINDS[there]}, and not {_KINDS[kind]}")


def set_aside(path: Path) -> Path:
    """Rename a file to `NAME.broken`, so that it is kept but out of the way of its replacement."""
    aside, again = path.with_name(f"{path.name}.broken"), 1
    while aside.exists() or aside.is_symlink():
        again += 1
        aside = path.with_name(f"{path.name}.broken-{again}")
    return path.rename(aside)
