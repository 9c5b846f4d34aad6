"""What is finished of a preparation, so that it can go on after an interruption."""

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
    folder: Path
    settings: dict[str, Any]
    state: str
    """Of the corpus' files, when it began."""
    shards: dict[str, list[Shard]] = field(default_factory=dict)
    """Those that are whole, by split."""
    files: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of a corpus that is fetched, how many documents of each split a file has that is read."""

    def documents(self) -> Counter[str]:
        """Of the shards that are whole, by split."""
        return Counter(
            {split: sum(s.documents for s in some) for split, some in self.shards.items()}
        )

    def add(self, split: str, shard: Shard) -> None:
        self.shards.setdefault(split, []).append(shard)
        self.write()

    def write(self) -> None:
        table = {"settings": self.settings, "state": self.state, "shards": {}, "files": self.files}
        for split, shards in self.shards.items():
            table["shards"][split] = [asdict(shard) for shard in shards]
        write_json(self.folder / _JOURNAL, table)
        sync_folder(self.folder)

    def close(self) -> None:
        sync_folder(self.folder)  # the manifest is there before the journal is not
        (self.folder / _JOURNAL).unlink(missing_ok=True)


@contextlib.contextmanager
def alone(folder: Path, *, wait: bool) -> Iterator[None]:
    """Make the folder. No other process prepares it meanwhile; one that does is waited for, or an
    error."""
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
    """The journal of an interrupted preparation, or a new one. What was half-written is removed."""
    journal = _read_journal(folder)
    if journal is None and any(not file.name.startswith(".") for file in folder.iterdir()):
        (folder / _LOCK).unlink()  # leave no trace in a folder of somebody else
        raise ConfigError(f"{folder} has other files in it: name a new folder")
    with writing(folder):
        for part in folder.glob(".*.part"):
            part.unlink()
        if journal is None or not journal.shards:
            # Nothing is lost by another beginning, also one with other settings.
            before, journal = journal, Journal(folder, settings, files.state())
            shutil.rmtree(folder / "tokenizer", ignore_errors=True)
            if before is not None and (before.settings, before.state) != (settings, journal.state):
                shutil.rmtree(folder / FETCHED, ignore_errors=True)  # files of the same names
            journal.write()
    check_same(journal.settings, settings, folder)
    if not isinstance(files, HubFiles) and journal.state != files.state():
        raise ConfigError(
            f"the files of {settings['corpus']} were changed since {folder} was begun: delete the "
            "folder and prepare it anew"
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
    except (WrongForm, TypeError) as error:  # of a name, of a key that is not known
        raise WrongFile(folder / _JOURNAL, str(error), AGAIN) from None
    return Journal(folder, table["settings"], table["state"], shards, table.get("files", {}))


def check_same(before: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    for key in [*now, *before]:
        if before.get(key) != now.get(key):
            said = f"{folder} was prepared with other settings"
            if key in FILE_KEYS and before.keys() >= FILE_KEYS <= now.keys():
                said = f"the files of {now['corpus']} have changed since {folder} was prepared"
            raise ConfigError(
                f"{said} ({key} is {before.get(key)!r} there and {now.get(key)!r} here): name "
                "another folder, or delete this one"
            )
