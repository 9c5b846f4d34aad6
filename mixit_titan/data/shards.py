"""Token shards on disk: what `mixit-titan prepare` writes, read by memory mapping.

FOLDER/manifest.json        what is there; written last, so a folder without it is not whole
FOLDER/train-00000.tokens   ids, little endian: documents one after another, each with its
                            end-of-text id
FOLDER/train-00000.ends     uint64, little endian: for each document, how many tokens of the
                            shard there are up to and with its end-of-text id
"""

import bisect
import contextlib
import functools
import json
import re
import resource
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mixit_titan.errors import ConfigError
from mixit_titan.files import write_json

FORMAT = 1
MANIFEST = "manifest.json"
AGAIN = "delete the folder and prepare it again"  # prepare leaves a folder with a manifest alone
_DTYPES = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
END_DTYPE = np.dtype("<u8")
_MAPPINGS = 2**15  # half of what Linux allows a process
_OTHER_FILES = 256  # that a process may have open besides those of a split


@dataclass(frozen=True, kw_only=True)
class Shard:
    name: str
    documents: int
    tokens: int
    """With the end-of-text ids."""
    bytes: int
    """Of the texts, in UTF-8."""
    sha256: dict[str, str]
    """Of the two files, by their ending: `tokens`, `ends`."""

    def files(self, folder: Path) -> dict[str, Path]:
        return {ending: folder / f"{self.name}.{ending}" for ending in ("tokens", "ends")}


@dataclass(frozen=True, kw_only=True)
class Split:
    """The counts are the sums over the shards."""

    documents: int
    tokens: int
    bytes: int
    shards: tuple[Shard, ...]


@dataclass(frozen=True, kw_only=True)
class TokenizerRecord:
    name: str
    fingerprint: str
    vocab_size: int
    eos_id: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    source: dict[str, Any]
    dtype: str
    """Of the ids: uint16 or uint32."""
    tokenizer: TokenizerRecord
    splits: dict[str, Split]

    @property
    def id_dtype(self) -> np.dtype:
        return _DTYPES[self.dtype]


def is_prepared(folder: str | Path) -> bool:
    return (Path(folder) / MANIFEST).is_file()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    write_json(folder / MANIFEST, {"format": FORMAT, **asdict(manifest)})


def read_manifest(folder: str | Path) -> Manifest:
    """The manifest of a prepared folder; what is damaged in it is named."""
    path = Path(folder) / MANIFEST
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"{folder} has no {MANIFEST}, so no whole token shards: run mixit-titan prepare "
            "(again; an interrupted one goes on)"
        ) from None
    except (ValueError, OSError) as error:
        raise ConfigError(f"{path} cannot be read ({error}): {AGAIN}") from None
    found = table.get("format") if isinstance(table, dict) else None
    if found != FORMAT:
        raise ConfigError(
            f"{path} is of format {found!r} and this version reads {FORMAT}: prepare the text "
            "again, into a new folder"
        )
    try:
        return _manifest(table)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path} is damaged ({error!r}): {AGAIN}") from None


def _manifest(table: dict[str, Any]) -> Manifest:
    if table["dtype"] not in _DTYPES:
        raise ValueError(f"dtype {table['dtype']!r}")
    record = table["tokenizer"]
    manifest = Manifest(
        source=dict(table["source"]),
        dtype=table["dtype"],
        tokenizer=TokenizerRecord(
            name=record["name"],
            fingerprint=str(record["fingerprint"]),
            **_counts(record, "vocab_size", "eos_id"),
        ),
        splits={name: _split(split) for name, split in table["splits"].items()},
    )
    for name, split in manifest.splits.items():
        for count in ("documents", "tokens", "bytes"):
            if getattr(split, count) != sum(getattr(shard, count) for shard in split.shards):
                raise ValueError(f"{count} of {name} is not the sum over its shards")
    return manifest


def _split(table: dict[str, Any]) -> Split:
    return Split(
        **_counts(table, "documents", "tokens", "bytes"),
        shards=tuple(_shard(shard) for shard in table["shards"]),
    )


def _shard(table: dict[str, Any]) -> Shard:
    name = table["name"]
    if not re.fullmatch(r"\w[\w-]*", name):  # it becomes a path
        raise ValueError(f"shard name {name!r}")
    return Shard(
        name=name,
        **_counts(table, "documents", "tokens", "bytes"),
        sha256={ending: str(table["sha256"][ending]) for ending in ("tokens", "ends")},
    )


def _counts(table: dict[str, Any], *keys: str) -> dict[str, int]:
    for key in keys:
        if type(table[key]) is not int or table[key] < 0:
            raise ValueError(f"{key} is {table[key]!r}")
    return {key: table[key] for key in keys}


class TokenSplit:
    """One split of a prepared folder as one long array of tokens, in a fixed order of shards.

    Files are mapped when they are first read. A split can be sent to another process: only its
    description goes.
    """

    def __init__(self, folder: Path, name: str, manifest: Manifest) -> None:
        self.folder, self.name = folder, name
        self.dtype, self.eos_id = manifest.id_dtype, manifest.tokenizer.eos_id
        split = manifest.splits[name]
        self.tokens, self.documents, self.bytes = split.tokens, split.documents, split.bytes
        self.shards = [shard for shard in split.shards if shard.documents]
        self.first_token = np.cumsum([0, *(shard.tokens for shard in self.shards)])
        self.first_document = np.cumsum([0, *(shard.documents for shard in self.shards)])
        self._first_token = self.first_token.tolist()  # bisect is quicker on a list
        self._open()

    def _open(self) -> None:
        self._map = functools.lru_cache(maxsize=_files_to_open())(self._map_file)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_map"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def _map_file(self, shard: int, ending: str) -> np.ndarray:
        path = self.shards[shard].files(self.folder)[ending]
        try:
            mapped = np.memmap(
                path, dtype=self.dtype if ending == "tokens" else END_DTYPE, mode="r"
            )
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} cannot be read ({error}): {AGAIN}") from None
        return mapped.view(np.ndarray)  # slices of a plain array are much cheaper

    def read(self, start: int, stop: int) -> np.ndarray:
        """Tokens start..stop of the whole split: a view of the file where they lie in one shard."""
        if not 0 <= start <= stop <= self.tokens:
            raise IndexError(f"tokens {start}..{stop} of {self.tokens}")
        shard = bisect.bisect_right(self._first_token, start) - 1
        parts = []
        while start < stop:
            first, upto = self._first_token[shard], min(stop, self._first_token[shard + 1])
            parts.append(self._map(shard, "tokens")[start - first : upto - first])
            start, shard = upto, shard + 1
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, self.dtype)

    def bounds(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where documents begin and end (with their end-of-text id), in tokens of the split."""
        shards = np.searchsorted(self.first_document, documents, side="right") - 1
        starts, stops = np.empty_like(documents), np.empty_like(documents)
        for shard in np.unique(shards):
            here = shards == shard
            ends = self._map(int(shard), "ends")
            local = documents[here] - self.first_document[shard]
            before = ends[np.maximum(local - 1, 0)].astype(np.int64)
            starts[here] = self.first_token[shard] + np.where(local > 0, before, 0)
            stops[here] = self.first_token[shard] + ends[local].astype(np.int64)
        return starts, stops

    def documents_before(self, tokens: np.ndarray) -> np.ndarray:
        """How many documents begin before each of `tokens` (above 0) of the split."""
        shards = np.searchsorted(self.first_token, tokens) - 1
        counts = np.empty_like(tokens)
        for shard in np.unique(shards):
            here = shards == shard
            # An end is the beginning of the next document. Searched in its own type: NumPy would
            # convert the whole file to another.
            local = (tokens[here] - self.first_token[shard]).astype(END_DTYPE)
            found = np.searchsorted(self._map(int(shard), "ends"), local)
            counts[here] = self.first_document[shard] + 1 + found
        return counts


def _files_to_open() -> int:
    """Each mapping holds a file open. Rows come in random order: where not all files can stay open,
    most reads map one anew."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    allowed = _MAPPINGS if soft == resource.RLIM_INFINITY else min(soft, _MAPPINGS)
    return max(allowed - _OTHER_FILES, 64)


def open_split(folder: str | Path, name: str) -> TokenSplit:
    manifest = read_manifest(folder)
    if name not in manifest.splits:
        raise ConfigError(
            f"{folder} has no split {name!r}, only {', '.join(manifest.splits)}: {AGAIN}"
        )
    return TokenSplit(Path(folder), name, manifest)
