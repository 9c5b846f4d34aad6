"""The files of an object store, by fsspec."""

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mixit_titan.data.readers import KINDS, reading_order
from mixit_titan.errors import ConfigError, unknown
from mixit_titan.files import json_text

PACKAGES = {"s3": "s3fs", "gs": "gcsfs"}
"""Scheme -> the package with which fsspec reads it."""
_MARKS = ("ETag", "etag", "md5Hash", "generation", "LastModified", "mtime", "created")
_BLOCK = 2**24  # bytes requested at once


@dataclass(frozen=True)
class StoreFiles:
    """The files below `s3://BUCKET/FOLDER` or `gs://BUCKET/FOLDER`, or a single file."""

    url: str

    @functools.cached_property
    def _listing(self) -> tuple[Any, str, dict[str, dict[str, Any]]]:
        """The file system, the path of the folder, and the description of each file."""
        import fsspec

        scheme = self.url.partition("://")[0]
        if scheme not in PACKAGES:
            raise unknown("kind of store", scheme, [*PACKAGES, "hf"], where=self.url)
        try:
            store, root = fsspec.url_to_fs(self.url)
        except ImportError:
            raise ConfigError(
                f"{self.url} is read with {PACKAGES[scheme]}, which is not installed: "
                f"pip install {PACKAGES[scheme]}=={fsspec.__version__}"  # versions go together
            ) from None
        except Exception as error:  # each store has its own exceptions
            raise self.unreachable(error) from None
        try:
            found = store.find(root, detail=True)
        except Exception as error:
            raise self.unreachable(error) from None
        top = root if root not in found else root.rpartition("/")[0]
        about = {path[len(top) :].lstrip("/"): info for path, info in found.items()}
        names = reading_order(name for name in about if name.endswith(KINDS))
        if not names:
            raise ConfigError(f"{self.url} has no files that end in {', '.join(KINDS)}")
        return store, top, {name: about[name] for name in names}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all files."""
        return tuple(self._listing[2])

    def describe(self) -> dict[str, Any]:
        """A description that is the same for two corpora whose files have the same names and
        sizes."""
        sizes = [(name, info["size"]) for name, info in self._listing[2].items()]
        digest = hashlib.sha256(json_text(sizes).encode()).hexdigest()[:16]
        total = sum(size for _, size in sizes)
        return {
            **{"url": self.url, "files": len(sizes)},
            **{"file_bytes": total, "files_digest": digest},
        }

    def state(self) -> str:
        """A hash that changes when a file is written to."""
        marks = [_mark(info) for info in self._listing[2].values()]
        return hashlib.sha256(json_text([self.describe(), marks]).encode()).hexdigest()[:16]

    def cached(self, name: str) -> None:
        """None: there is no cache shared by all stores."""

    def fetch(self, name: str, part: Path) -> None:
        """Fetch the rest of a file into `part`."""
        store, top, about = self._listing
        path, size = f"{top}/{name}", about[name]["size"]
        version = _version(store, path)
        if part.exists() and part.stat().st_size > size:
            part.unlink()
        with part.open("ab") as file, store.open(path, "rb", cache_type="none") as remote:
            remote.seek(file.tell())
            while block := remote.read(_BLOCK):
                file.write(block)
        if _version(store, path) != version:
            part.unlink()
            raise ConfigError(f"{self.url} changed while it was read ({name}): start again")
        if part.stat().st_size != size:
            raise OSError(f"{part.stat().st_size:,} of {size:,} bytes arrived")

    def unreachable(self, error: Exception) -> ConfigError:
        """The error for a store that cannot be read."""
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return ConfigError(
            f"{self.url} cannot be read ({reason}): check its name and your credentials, and try "
            "again"
        )


def _version(store: Any, path: str) -> str:
    store.invalidate_cache(path)
    return _mark(store.info(path))


def _mark(info: dict[str, Any]) -> str:
    """A mark that changes when the file is written to."""
    marks = [str(info[key]) for key in _MARKS if info.get(key)]
    return f"{info['size']} {marks[0] if marks else ''}"
