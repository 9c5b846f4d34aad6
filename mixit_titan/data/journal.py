"""The journal of a preparation: what is finished, so that it can resume after an interruption."""

import contextlib
import fcntl
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mixit_titan.data.fetching import FETCHED
from mixit_titan.data.files import FILE_KEYS, LocalFiles
from mixit_titan.data.hub import HubFiles
from mixit_titan.data.shards import AGAIN, SHARD_FORM, Shard
from mixit_titan.data.stores import StoreFiles
from mixit_titan.errors import ConfigError
from mixit_titan.files import sync_folder, write_json, writing
from mixit_titan.json_form import COUNT, WrongForm
from mixit_titan.reading import WrongFile, read_json, regular

_JOURNAL = ".prepare.json"
_LOCK = ".prepare.lock"
_FORM = {
    **{"settings": dict, "state": str, "shards": {"*": [SHARD_FORM]}},
    "files?": {"*": {"*": COUNT}},
}


@dataclass
class Journal:
    """What is finished of a preparation."""

    folder: Path
    settings: dict[str, Any]
    state: str
    """The state of the corpus' files when the preparation began."""
    shards: dict[str, list[Shard]] = field(default_factory=dict)
    """The complete shards, by split."""
    files: dict[str, dict[str, int]] = field(default_factory=dict)
    """For a corpus that is fetched, the number of documents of each split in each file that was
    read."""

    def documents(self) -> Counter[str]:
        """The documents in complete shards, by split."""
        return Counter(
            {split: sum(s.documents for s in some) for split, some in self.shards.items()}
        )

    def add(self, split: str, shard: Shard) -> None:
        """Record a complete shard."""
        self.shards.setdefault(split, []).append(shard)
        self.write()

    def write(self) -> None:
        """Write the journal to disk."""
        table = {"settings": self.settings, "state": self.state, "shards": {}, "files": self.files}
        for split, shards in self.shards.items():
            table["shards"][split] = [asdict(shard) for shard in shards]
        write_json(self.folder / _JOURNAL, table)
        sync_folder(self.folder)

    def close(self) -> None:
        """Delete the journal of a finished preparation."""
        sync_folder(self.folder)  # the manifest must be durable before the journal is deleted
        (self.folder / _JOURNAL).unlink(missing_ok=True)


@contextlib.contextmanager
def alone(folder: Path, *, wait: bool) -> Iterator[None]:
    """Create the folder and keep other processes from preparing it in the block. One that already
    does is waited for, or an error."""
    with contextlib.ExitStack() as stack:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(open(folder / _LOCK, "w", opener=regular))
        try:
            # Not flock, whose lock the workers would inherit: they may outlive a killed parent.
            fcntl.lockf(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise ConfigError(f"another process is preparing {folder}: wait for it") from None
        except OSError as error:
            raise ConfigError(
                f"{folder} cannot be locked ({error.strerror}): name a folder on another disk"
            ) from None
        yield


def open_journal(
    folder: Path, settings: dict[str, Any], files: LocalFiles | HubFiles | StoreFiles
) -> Journal:
    """The journal of an interrupted preparation, or a new one. Incomplete files are removed."""
    journal = _read_journal(folder)
    if journal is None and any(not file.name.startswith(".") for file in folder.iterdir()):
        (folder / _LOCK).unlink()  # leave no trace in somebody else's folder
        raise ConfigError(f"{folder} contains other files: name a new folder")
    with writing(folder):
        for part in folder.glob(".*.part"):
            part.unlink()
        if journal is None or not journal.shards:
            # Nothing is lost by starting again, even with other settings.
            before, journal = journal, Journal(folder, settings, files.state())
            shutil.rmtree(folder / "tokenizer", ignore_errors=True)
            if before is not None and (before.settings, before.state) != (settings, journal.state):
                shutil.rmtree(folder / FETCHED, ignore_errors=True)  # files of the same names
            journal.write()
    check_same(journal.settings, settings, folder)
    if not isinstance(files, HubFiles) and journal.state != files.state():
        raise ConfigError(
            f"the files of {settings['corpus']} have changed since {folder} was started: delete "
            "the folder and prepare it again"
        )
    return journal


def _read_journal(folder: Path) -> Journal | None:
    try:
        table = read_json(folder / _JOURNAL, _FORM, advice=AGAIN)
        shards = {
            split: [Shard(**shard) for shard in shards] for split, shards in table["shards"].items()
        }
    except FileNotFoundError:
        return None
    except (WrongForm, TypeError) as error:  # for an invalid name, and for an unknown key
        raise WrongFile(folder / _JOURNAL, str(error), AGAIN) from None
    return Journal(folder, table["settings"], table["state"], shards, table.get("files", {}))


def check_same(before: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    """Raise a ConfigError that names the first setting in which two preparations differ."""
    for key in [*now, *before]:
        if before.get(key) != now.get(key):
            said = f"{folder} was prepared with other settings"
            if key in FILE_KEYS and before.keys() >= FILE_KEYS <= now.keys():
                said = f"the files of {now['corpus']} have changed since {folder} was prepared"
            raise ConfigError(
                f"{said} ({key} is {before.get(key)!r} there and {now.get(key)!r} here): name "
                "another folder, or delete this one"
            )
