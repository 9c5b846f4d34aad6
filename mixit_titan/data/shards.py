"""Token shards on disk: what `mixit-titan prepare` writes, read by memory mapping.

FOLDER/manifest.json        the description; written last, so without it the folder is incomplete
FOLDER/train-00000.tokens   ids, little endian: documents one after another, each followed by
                            its end-of-text id
FOLDER/train-00000.ends     uint64, little endian: for each document, the number of tokens of the
                            shard up to and including its end-of-text id

With the end-of-text id 9, the documents `5 6` and `7` are 5 6 9 7 9, and their ends are 3 5.
"""

import bisect
import contextlib
import functools
import re
import resource
import shlex
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from mixit_titan.errors import ConfigError, RankFailed
from mixit_titan.files import write_json
from mixit_titan.json_form import COUNT, WrongForm, check_form
from mixit_titan.reading import WrongFile, read_json, regular

FORMAT = 1
MANIFEST = "manifest.json"
AGAIN = "delete the folder and prepare it again"  # prepare does not touch a folder with a manifest
_DTYPES = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
END_DTYPE = np.dtype("<u8")
_MAPPINGS = 2**15  # half of what Linux allows per process
_OTHER_FILES = 256  # reserved for files that do not belong to a split

_COUNTS = {"documents": COUNT, "tokens": COUNT, "bytes": COUNT}
SHARD_FORM = {"name": str, **_COUNTS, "sha256": {"tokens": str, "ends": str}}
_FORM = {
    "source": {"settings?": dict, "command?": [str], "files?": {"*": {"*": COUNT}}},
    "dtype": str,
    "tokenizer": {"name": str, "fingerprint": str, "vocab_size": COUNT, "eos_id": COUNT},
    "splits": {"*": {**_COUNTS, "shards": [SHARD_FORM]}},
}


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One pair of files, with its counts and checksums."""

    name: str
    documents: int
    tokens: int
    """With the end-of-text ids."""
    bytes: int
    """Bytes of the texts in UTF-8."""
    sha256: dict[str, str]
    """Of the two files, by their endings: `tokens`, `ends`."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w-]*", self.name, re.ASCII):  # it becomes a path
            raise WrongForm(f"a shard is called {self.name!r:.60}")

    def files(self, folder: Path) -> dict[str, Path]:
        """The two files, by their endings."""
        return {ending: folder / f"{self.name}.{ending}" for ending in ("tokens", "ends")}


@dataclass(frozen=True, kw_only=True)
class Split:
    """The shards of a split; the counts are sums over the shards."""

    documents: int
    tokens: int
    bytes: int
    shards: tuple[Shard, ...]


@dataclass(frozen=True, kw_only=True)
class TokenizerRecord:
    """The tokenizer that made the tokens."""

    name: str
    fingerprint: str
    vocab_size: int
    eos_id: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The description of a prepared folder."""

    source: dict[str, Any]
    dtype: str
    """The type of the ids: uint16 or uint32."""
    tokenizer: TokenizerRecord
    splits: dict[str, Split]

    @property
    def id_dtype(self) -> np.dtype:
        """The type of the ids, for numpy."""
        return _DTYPES[self.dtype]

    def mending(self, folder: Path) -> str:
        """What to do about a shard that is not as the manifest says."""
        if "settings" not in self.source:  # not made from texts
            return AGAIN
        if "command" not in self.source:  # of an earlier version
            return "run the command that prepared the folder again, with --verify, to repair it"
        words = [*self.source["command"], "--out", str(folder), "--verify"]
        return f"repair it with:\n  {shlex.join(words)}"


def is_prepared(folder: str | Path) -> bool:
    """Whether a folder contains complete token shards."""
    return (Path(folder) / MANIFEST).is_file()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, which makes the folder a prepared one."""
    write_json(folder / MANIFEST, {"format": FORMAT, **asdict(manifest)})


def read_manifest(folder: str | Path) -> Manifest:
    """The manifest of a prepared folder; raises a ConfigError that names what is damaged."""
    path = Path(folder) / MANIFEST
    try:
        table = read_json(path, dict, advice=AGAIN)
    except FileNotFoundError:
        raise ConfigError(
            f"{folder} has no {MANIFEST}, so its token shards are not complete: run mixit-titan "
            "prepare (if it was interrupted, it resumes)"
        ) from None
    if table.get("format") != FORMAT:
        raise ConfigError(
            f"{path} has format {table.get('format')!r:.40}, and this version reads {FORMAT}: "
            "prepare the text again, into a new folder"
        )
    try:
        check_form(table, _FORM)
        return _manifest(table)
    except WrongForm as wrong:
        raise WrongFile(path, str(wrong), AGAIN) from None


def _manifest(table: dict[str, Any]) -> Manifest:
    if table["dtype"] not in _DTYPES:
        raise WrongForm(f"dtype is {table['dtype']!r:.40}")
    manifest = Manifest(
        source=table["source"],
        dtype=table["dtype"],
        tokenizer=TokenizerRecord(**_only(table["tokenizer"], TokenizerRecord)),
        splits={name: _split(split) for name, split in table["splits"].items()},
    )
    if manifest.tokenizer.eos_id >= manifest.tokenizer.vocab_size:
        raise WrongForm("its end-of-text id is not in its vocabulary")
    for name, split in manifest.splits.items():
        for count in _COUNTS:
            if getattr(split, count) != sum(getattr(shard, count) for shard in split.shards):
                raise WrongForm(f"{count} of {name!r:.40} is not the sum over its shards")
    names = [shard.name for split in manifest.splits.values() for shard in split.shards]
    if len(set(names)) < len(names):
        raise WrongForm("it names a shard twice")
    return manifest


def _split(table: dict[str, Any]) -> Split:
    shards = tuple(Shard(**_only(shard, Shard)) for shard in table["shards"])
    return Split(**_only(table, Split) | {"shards": shards})


def _only(table: dict[str, Any], cls: type) -> dict[str, Any]:
    """The keys that the dataclass knows: a later version may write more."""
    return {field.name: table[field.name] for field in fields(cls)}


def map_shard(folder: Path, shard: Shard, dtype: np.dtype, ending: str) -> np.ndarray:
    """The ids of a shard, or the ends of its documents, memory-mapped."""
    path = shard.files(folder)[ending]
    kind, count = (dtype, shard.tokens) if ending == "tokens" else (END_DTYPE, shard.documents)
    try:
        with open(path, "rb", opener=regular) as file:
            mapped = np.memmap(file, dtype=kind, mode="r", shape=(count,))
    except (OSError, ValueError) as error:
        raise WrongFile(path, str(error), AGAIN) from None
    return mapped.view(np.ndarray)  # slicing a plain array is much cheaper


class TokenSplit:
    """One split of a prepared folder as one long array of tokens, in a fixed order of shards.

    Files are mapped when they are first read. Only the description is pickled when a split is sent
    to another process.
    """

    def __init__(self, folder: Path, name: str, manifest: Manifest) -> None:
        self.folder, self.name = folder, name
        self.dtype, self.eos_id = manifest.id_dtype, manifest.tokenizer.eos_id
        self.vocab = manifest.tokenizer.vocab_size
        self.mending = manifest.mending(folder)
        split = manifest.splits[name]
        self.tokens, self.documents, self.bytes = split.tokens, split.documents, split.bytes
        self.shards = [shard for shard in split.shards if shard.documents]
        self.first_token = np.cumsum([0, *(shard.tokens for shard in self.shards)])
        self.first_document = np.cumsum([0, *(shard.documents for shard in self.shards)])
        self._first_token = self.first_token.tolist()  # bisect is faster on a list
        self._open()

    def _open(self) -> None:
        self._map = functools.lru_cache(maxsize=_files_to_open())(self._map_file)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_map"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def _map_file(self, shard: int, ending: str) -> np.ndarray:
        try:
            return map_shard(self.folder, self.shards[shard], self.dtype, ending)
        except WrongFile as wrong:
            raise WrongFile(wrong.path, wrong.problem, self.mending) from None

    def read(self, start: int, stop: int) -> np.ndarray:
        """Tokens start..stop of the split: a view of the file if they are all in one shard."""
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
        if (starts >= stops).any() or (stops > self.tokens).any():
            raise self.changed("documents that are not one after another")
        return starts, stops

    def changed(self, found: str) -> RankFailed:
        """The error for damage in files that were verified when the run began."""
        return RankFailed(
            f"{self.folder} has changed during the run, it has {found}: {self.mending}"
        )

    def documents_before(self, tokens: np.ndarray) -> np.ndarray:
        """How many documents begin before each of `tokens` (above 0) of the split."""
        shards = np.searchsorted(self.first_token, tokens) - 1
        counts = np.empty_like(tokens)
        for shard in np.unique(shards):
            here = shards == shard
            # The end of a document is the beginning of the next. Searched in the type of the file,
            # because NumPy would otherwise convert all of it.
            local = (tokens[here] - self.first_token[shard]).astype(END_DTYPE)
            found = np.searchsorted(self._map(int(shard), "ends"), local)
            counts[here] = self.first_document[shard] + 1 + found
        return counts


def _files_to_open() -> int:
    """How many files to keep open: each mapping holds one. Rows come in random order, so that most
    reads have to map a file again where not all can stay open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # some systems allow less than they claim
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    allowed = _MAPPINGS if soft == resource.RLIM_INFINITY else min(soft, _MAPPINGS)
    return max(allowed - _OTHER_FILES, 64)


def open_split(folder: str | Path, name: str) -> TokenSplit:
    """One split of a prepared folder; raises a ConfigError where it has none of that name."""
    manifest = read_manifest(folder)
    if name not in manifest.splits:
        raise ConfigError(
            f"{folder} has no split {name!r}, only {', '.join(manifest.splits)}: {AGAIN}"
        )
    return TokenSplit(Path(folder), name, manifest)
