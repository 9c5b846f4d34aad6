"""Checksums of token shards: computed once for each state of the files, and remembered.

`.verified.json` in the folder records size, times and checksum of every file that was found
to be complete. The time of the last write can be forged, the time of the last change of any kind
cannot. When checksums are computed, it is also checked that all tokens are in the vocabulary and
that documents follow one another: even wrong content can have a correct checksum.

The ranks of a machine start at the same time: the first one computes, holding a lock, and the
others find its result.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from mixit_titan.data.shards import AGAIN, END_DTYPE, Manifest, Shard, map_shard, read_manifest
from mixit_titan.data.tokenizers import build_tokenizer, fingerprint, saved_tokenizer
from mixit_titan.errors import ConfigError
from mixit_titan.files import json_text, write_text
from mixit_titan.log import logger
from mixit_titan.reading import WrongFile, json_if_good, regular

_MEMORY = ".verified.json"
_LOCK = ".verified.lock"
_THREADS = 8
_OTHER_SUM = "its checksum is not the one in the manifest"

_AT_A_TIME = 2**24  # tokens

State = dict[str, list]
"""File name -> size, times of the last write and change in nanoseconds, checksum."""


def verify(folder: str | Path) -> Manifest:
    """The manifest of a folder whose files all exist and are complete; else a ConfigError that
    names the file."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    for _, problem in _wrong_sizes(folder, shards, manifest.id_dtype):
        raise ConfigError(f"{problem}: {manifest.mending(folder)}")
    expected = {
        path: shard.sha256[ending]
        for shard in shards
        for ending, path in shard.files(folder).items()
    }
    if _state(expected) == _remembered(folder):
        return manifest
    with _locked(folder) as writable:
        if not writable and os.environ.get("LOCAL_RANK", "0") != "0":
            return manifest  # the first rank of this machine computes, and stops the run
        _compute(folder, manifest, expected, remember=writable)
    return manifest


def damaged(folder: Path, manifest: Manifest) -> dict[str, str]:
    """Shard -> what is wrong with it. All checksums are computed, whatever is remembered: a disk
    may return other bytes than those that were written."""
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    found = {shard.name: said for shard, said in _wrong_sizes(folder, shards, manifest.id_dtype)}
    left = [shard for shard in shards if shard.name not in found]
    paths = [(shard, *file) for shard in left for file in shard.files(folder).items()]
    with ThreadPoolExecutor(_THREADS) as threads:
        sums = threads.map(_checksum_or_error, [path for _, _, path in paths])
        for (shard, ending, path), digest in zip(paths, sums, strict=True):
            if isinstance(digest, ConfigError):
                found[shard.name] = str(digest)
            elif digest != shard.sha256[ending]:
                found[shard.name] = f"{path} is damaged, {_OTHER_SUM}"
    return found


def check_tokenizer(folder: Path, manifest: Manifest, advice: str | None = None) -> None:
    """Raise a ConfigError unless the tokenizer in a prepared folder is the one that made its
    tokens."""
    advice = advice or manifest.mending(folder)
    try:
        tokenizer = build_tokenizer(saved_tokenizer(folder) or "bytes")
    except ConfigError as error:
        raise ConfigError(f"{error}: {advice}") from None
    record = manifest.tokenizer
    if (fingerprint(tokenizer), tokenizer.eos_id) != (record.fingerprint, record.eos_id):
        raise ConfigError(
            f"{folder / 'tokenizer'} does not contain {record.name!r}, the tokenizer of its tokens "
            f"according to the manifest: restore its files, or {advice}"
        )


def _wrong_sizes(folder: Path, shards: list[Shard], dtype: np.dtype) -> Iterator[tuple[Shard, str]]:
    """Files that are missing or truncated, found without reading them."""
    for shard in shards:
        sizes = {
            "tokens": shard.tokens * dtype.itemsize,
            "ends": shard.documents * END_DTYPE.itemsize,
        }
        for ending, path in shard.files(folder).items():
            try:
                size = path.stat().st_size
            except OSError as error:
                yield shard, f"{path} is missing ({error.strerror})"
                continue
            if size != sizes[ending]:
                yield shard, f"{path} has {size:,} bytes, but its manifest says {sizes[ending]:,}"


def _compute(
    folder: Path, manifest: Manifest, expected: dict[Path, str], *, remember: bool
) -> None:
    known = _remembered(folder)
    state = _state(expected)  # before reading, so that a file that then changes is read again
    unknown = [path for path in expected if known.get(path.name) != state[path.name]]
    with ThreadPoolExecutor(_THREADS) as threads:
        for path, digest in zip(unknown, threads.map(_checksum, unknown), strict=True):
            if digest != expected[path]:
                raise ConfigError(f"{path} is damaged, {_OTHER_SUM}: {manifest.mending(folder)}")
        changed = {path.stem for path in unknown}
        shards = [shard for split in manifest.splits.values() for shard in split.shards]
        new = [shard for shard in shards if shard.name in changed]
        list(threads.map(functools.partial(_check_content, folder, manifest), new))
    try:
        if remember:
            write_text(folder / _MEMORY, json_text(state))
    except OSError:  # a full disk
        remember = False
    if not remember:
        logger.warning(f"{folder} is not writable: checksums are computed at every start")


def _check_content(folder: Path, manifest: Manifest, shard: Shard) -> None:
    """Check that ids are in the vocabulary, that documents follow one another up to the last token,
    and that each ends in its end-of-text id."""
    if not shard.documents and not shard.tokens:
        return
    files, dtype, record = shard.files(folder), manifest.id_dtype, manifest.tokenizer
    if not shard.documents:
        raise WrongFile(files["ends"], "it has no document for its tokens", AGAIN)
    tokens, ends = (map_shard(folder, shard, dtype, ending) for ending in ("tokens", "ends"))
    if ends[0] == 0 or not (ends[:-1] < ends[1:]).all() or ends[-1] != len(tokens):
        raise WrongFile(files["ends"], "its documents are not one after another", AGAIN)
    for start in range(0, len(tokens), _AT_A_TIME):
        if tokens[start : start + _AT_A_TIME].max() >= record.vocab_size:
            problem = f"it has an id that is not among the {record.vocab_size:,} of its tokenizer"
            raise WrongFile(files["tokens"], problem, AGAIN)
    if (tokens[ends - 1] != record.eos_id).any():
        raise WrongFile(files["tokens"], "a document does not end in its end-of-text id", AGAIN)


def _checksum(path: Path) -> str:
    try:
        with open(path, "rb", opener=regular) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def _checksum_or_error(path: Path) -> str | ConfigError:
    try:
        return _checksum(path)
    except ConfigError as error:
        return error


def _state(expected: dict[Path, str]) -> State:
    stats = {path: path.stat() for path in expected}
    return {
        path.name: [found.st_size, found.st_mtime_ns, found.st_ctime_ns, digest]
        for (path, digest), found in zip(expected.items(), stats.values(), strict=True)
    }


def _remembered(folder: Path) -> State:
    return json_if_good(folder / _MEMORY, dict) or {}


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Wait for the lock of the folder; yields False where locking is impossible (a read-only
    folder, a file system without locks)."""
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open(folder / _LOCK, "w", opener=regular))
            fcntl.flock(file, fcntl.LOCK_EX)
        except (OSError, WrongFile):
            yield False
            return
        yield True
