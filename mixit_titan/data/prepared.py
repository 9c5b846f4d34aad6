"""The token shards behind `data.path`: the folder itself, or those of a text, prepared and
cached."""

import hashlib
from pathlib import Path

from mixit_titan.data.files import LocalFiles
from mixit_titan.data.prepare import available_workers, prepare
from mixit_titan.data.shards import Manifest, is_prepared, read_manifest
from mixit_titan.data.sources import STDLIB, find_corpus
from mixit_titan.data.synthetic import SYNTHETIC, synthetic_folder
from mixit_titan.data.tokenizers import build_tokenizer, fingerprint, saved_tokenizer
from mixit_titan.data.verification import check_tokenizer, verify
from mixit_titan.errors import ConfigError
from mixit_titan.files import cache_folder, json_text
from mixit_titan.log import logger

_LITTLE = 2**25  # bytes for which starting processes is not worth the time


def prepared_data(path: str, tokenizer: str | None, *, vocab: int) -> tuple[str, str]:
    """The folder of token shards, verified to be complete, and the name of its tokenizer. A text is
    tokenized first; synthetic tokens are drawn from `vocab`."""
    if path == SYNTHETIC:
        if tokenizer is not None:
            raise ConfigError(
                f"data.path = {SYNTHETIC!r} has no text to tokenize: leave data.tokenizer out"
            )
        folder = synthetic_folder(vocab)
        return str(folder), verify(folder).tokenizer.name
    if not is_prepared(path) and any(Path(path).glob("*.tokens")):
        read_manifest(path)  # raises because there is none
    folder = prepared_folder(path, tokenizer or "bytes")
    manifest = verify(folder)
    if tokenizer is None:
        check_tokenizer(folder, manifest)
    else:
        _check_same(tokenizer, manifest, folder)
    return str(folder), tokenizer or saved_tokenizer(folder) or "bytes"


def prepared_folder(path: str, tokenizer: str) -> Path:
    """A folder of token shards for a run. Several processes may ask at once: one prepares it, and
    the others wait."""
    if is_prepared(path):
        return Path(path)
    if path != STDLIB and not Path(path).exists():
        raise ConfigError(
            f"data.path = {path!r} does not exist: name a folder that mixit-titan prepare wrote, a "
            f"text file or a folder of them, {STDLIB!r} for the Python standard library's "
            f"sources, or {SYNTHETIC!r} for random tokens"
        )
    # An absolute path, because a folder may have the name of a corpus of the hub.
    corpus = find_corpus(path if path == STDLIB else str(Path(path).resolve()))
    assert isinstance(corpus.files, LocalFiles)
    place = str(corpus.files.root)
    key = [place, corpus.settings(), corpus.files.state(), fingerprint(build_tokenizer(tokenizer))]
    digest = hashlib.sha256(json_text(key).encode()).hexdigest()[:16]
    folder = cache_folder() / f"{corpus.name}-{digest}"
    if not is_prepared(folder):
        logger.info(f"Tokenizing {path} into {folder}, once")
        workers = 1 if corpus.files.bytes < _LITTLE else available_workers()
        prepare(corpus, tokenizer, folder, workers=workers, wait=True)
    return folder


def _check_same(name: str, manifest: Manifest, folder: Path) -> None:
    if fingerprint(build_tokenizer(name)) != manifest.tokenizer.fingerprint:
        raise ConfigError(
            f"the tokenizer {name!r} is not the one that {folder} was prepared with, which is "
            f"{manifest.tokenizer.name!r}: remove data.tokenizer from the config (on the command "
            "line: --data.tokenizer=), or prepare the text again"
        )
