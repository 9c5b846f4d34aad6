"""The files of a remote corpus, on this machine while they are needed.

A file is handed out once it is complete; meanwhile threads fetch the files after it. If a transfer
or this process breaks, the part of the file that has arrived stays, and the transfer resumes. A
file that is no longer needed is deleted, unless it is to be kept.
"""

import shutil
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from itertools import islice
from pathlib import Path, PurePosixPath

from mixit_titan.data.hub import HubFiles
from mixit_titan.data.stores import StoreFiles
from mixit_titan.errors import ConfigError, disk_is_full
from mixit_titan.files import writing
from mixit_titan.log import logger

FETCHED = "fetched"
"""The folder of fetched files, inside the folder of the shards."""
AT_ONCE = 4
_TRIES = 6  # in a row without a new byte
_WAIT = 1.0  # seconds before the second try, doubled before each later one
_ASK_AGAIN = (408, 416, 429)


class FetchedFiles:
    """The files of `source`, in a folder of this machine."""

    def __init__(self, source: HubFiles | StoreFiles, folder: Path, *, keep: bool) -> None:
        self.source, self.folder, self.keep = source, folder, keep
        self.ahead = 1
        """Files that are fetched at once; 1: by the caller, without a thread."""
        self.unneeded: Mapping[str, Counter[str]] = {}
        """Files that will not be asked for, and how many documents of each split they have."""
        self._under_way: dict[str, Future[Path]] = {}
        self._stopped = threading.Event()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all files."""
        return self.source.names

    def path(self, name: str) -> Path:
        """The path of a file, once it is complete."""
        if self.ahead == 1:
            return self._fetch(name)
        rest = self.names[self.names.index(name) + 1 :]
        for following in (name, *islice(filter(self._is_needed, rest), self.ahead - 1)):
            if following not in self._under_way:
                self._under_way[following] = self._begin(following)
        return self._under_way[name].result()

    def release(self, name: str) -> None:
        """Delete a file that is no longer needed."""
        self._under_way.pop(name, None)
        if not self.keep:
            (self.folder / name).unlink(missing_ok=True)

    def stop(self) -> None:
        """Start no other transfer; those under way end with the process."""
        self._stopped.set()

    def close(self) -> None:
        """Delete all files: none is needed any longer."""
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _is_needed(self, name: str) -> bool:
        return name not in self.unneeded

    def _begin(self, name: str) -> Future[Path]:
        """Fetch a file in a daemon thread, which does not keep the process from ending."""
        future: Future[Path] = Future()

        def run() -> None:
            try:
                future.set_result(self._fetch(name))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future

    def _fetch(self, name: str) -> Path:
        path = self.folder / name
        if ".." in PurePosixPath(name).parts or PurePosixPath(name).is_absolute():
            raise ConfigError(f"a file of the source is called {name!r}, which is not a valid name")
        if path.exists():
            return path
        cached = self.source.cached(name)
        if cached is not None:
            return cached
        part = path.with_name(f".{path.name}.part")
        with writing(self.folder):
            part.parent.mkdir(parents=True, exist_ok=True)
        tries = 1
        while not self._stopped.is_set():
            before = _size(part)
            try:
                self.source.fetch(name, part)
                part.replace(path)
                break
            except Exception as error:  # each store has its own exceptions
                tries = 1 if _size(part) > before else tries + 1
                self._check_again(name, error, tries)
            self._stopped.wait(_WAIT * 2 ** (tries - 1))
        return path

    def _check_again(self, name: str, error: Exception, tries: int) -> None:
        """Raise the error unless it is worth another try."""
        if disk_is_full(error):
            with writing(self.folder):
                raise error
        if isinstance(error, ConfigError):
            raise error
        if tries > _TRIES or _is_final(error):
            raise self.source.unreachable(error) from None
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        logger.warning(f"Resuming the transfer of {name}: {reason}")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _is_final(error: Exception) -> bool:
    """Whether another try would fail in the same way: the file does not exist, or must not be
    read."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if status is not None:
        return 400 <= status < 500 and status not in _ASK_AGAIN
    return isinstance(error, FileNotFoundError | PermissionError)
