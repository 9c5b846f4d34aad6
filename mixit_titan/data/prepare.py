"""Tokenizes a corpus into shards (shards.py); an interrupted preparation resumes.

Documents are always read in the same order, and a shard ends by its number of tokens alone: the
same corpus gives the same bytes, with any number of workers and interruptions. The journal
(`.prepare.json`) lists the complete shards, whose documents are skipped when it resumes.
"""

import os
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from torchtitan.components.tokenizer import BaseTokenizer

from mixit_titan.data.bpe import check_vocabulary, train_tokenizer
from mixit_titan.data.corpus import Corpus
from mixit_titan.data.encoding import EncodedBatch
from mixit_titan.data.fast_encoder import EncoderName, choose_encoder
from mixit_titan.data.fetching import FetchedFiles
from mixit_titan.data.hub import HubFiles
from mixit_titan.data.journal import Journal, alone, check_same, open_journal
from mixit_titan.data.shards import (
    Manifest,
    Shard,
    Split,
    TokenizerRecord,
    is_prepared,
    write_manifest,
)
from mixit_titan.data.tokenizers import (
    build_tokenizer,
    copy_tokenizer,
    fingerprint,
    has_no_files,
    saved_tokenizer,
    vocabulary,
)
from mixit_titan.data.verification import check_tokenizer, verify
from mixit_titan.data.writer import write_shards
from mixit_titan.errors import ConfigError
from mixit_titan.files import writing
from mixit_titan.log import logger

SHARD_TOKENS = 2**26


def prepare(
    corpus: Corpus,
    tokenizer: str | int,
    folder: Path,
    *,
    workers: int,
    shard_tokens: int = SHARD_TOKENS,
    encoder: EncoderName = "auto",
    keep: bool = False,
    wait: bool = False,
    say: Callable[[str], None] = logger.info,
    on_start: Callable[[list[Shard]], None] = lambda finished: None,
    on_batch: Callable[[EncodedBatch], None] = lambda batch: None,
) -> Manifest:
    """Write the shards of a corpus, or those that are missing.

    `tokenizer` is a name as in `data.tokenizer`, or the size of one to train on the corpus. With
    `keep`, the files of a remote corpus stay in the folder after they are read. With `wait`,
    another process that prepares the same folder is waited for.
    """
    settings, built = identify(corpus, tokenizer, shard_tokens)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: name a folder")
    if is_prepared(folder):
        return _finished(folder, settings)
    with alone(folder, wait=wait):
        if is_prepared(folder):  # by the process that was waited for
            return _finished(folder, settings)
        journal = open_journal(folder, settings, corpus.files)
        corpus = corpus.at(journal.state).fetched_to(folder, keep=keep)
        with writing(folder):
            built = save_tokenizer(folder, tokenizer, built, corpus)
        encode, said = choose_encoder(built, _dtype(built), encoder)
        say(said)
        on_start([*chain.from_iterable(journal.shards.values())])
        write_shards(journal, corpus, encode, workers, on_batch)
        manifest = _manifest(journal, corpus, built, tokenizer)
        with writing(folder):
            write_manifest(folder, manifest)
            journal.close()
        if isinstance(corpus.files, FetchedFiles):
            corpus.files.close()
    return manifest


def identify(
    corpus: Corpus, tokenizer: str | int, shard_tokens: int
) -> tuple[dict[str, Any], BaseTokenizer | None]:
    """What determines the bytes of the shards, and the tokenizer unless it is to be trained."""
    settings = corpus.settings() | {"shard_tokens": shard_tokens}
    if isinstance(tokenizer, int):
        check_vocabulary(tokenizer)
        return settings | {"train_tokenizer": tokenizer}, None
    built = build_tokenizer(tokenizer)
    return settings | {"tokenizer": fingerprint(built)}, built


def _finished(folder: Path, settings: dict[str, Any]) -> Manifest:
    manifest = verify(folder)
    check_tokenizer(folder, manifest)
    check_same(manifest.source.get("settings", {}), settings, folder)
    return manifest


def available_workers() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def save_tokenizer(
    folder: Path, name: str | int, tokenizer: BaseTokenizer | None, corpus: Corpus
) -> BaseTokenizer:
    """Put the tokenizer's files into the folder, after training it if that is asked for and not
    done yet."""
    if isinstance(name, int):
        if saved_tokenizer(folder) is None:
            train_tokenizer(corpus.documents(), name, folder / "tokenizer")
        return build_tokenizer(saved_tokenizer(folder))
    if tokenizer.eos_id is None:
        raise ConfigError(
            f"the tokenizer {name!r} has no end-of-text token: name it as eos_token in its "
            "tokenizer_config.json"
        )
    copy_tokenizer(name, folder)
    return tokenizer


def _dtype(tokenizer: BaseTokenizer) -> np.dtype:
    return np.dtype("<u2" if vocabulary(tokenizer) <= 2**16 else "<u4")


def _command(journal: Journal, corpus: Corpus, tokenizer: str | int) -> list[str]:
    """The command that prepares the same shards, in any working directory and folder."""
    words = ["mixit-titan", "prepare", *corpus.words]
    if isinstance(tokenizer, int):
        words += ["--train-tokenizer", str(tokenizer)]
    else:
        path = tokenizer if has_no_files(tokenizer) else str(Path(tokenizer).resolve())
        words += ["--tokenizer", path]
    size = journal.settings["shard_tokens"]
    return words if size == SHARD_TOKENS else [*words, "--shard-tokens", str(size)]


def _manifest(
    journal: Journal, corpus: Corpus, tokenizer: BaseTokenizer, name: str | int
) -> Manifest:
    source: dict[str, Any] = {
        "settings": journal.settings,
        "command": _command(journal, corpus, name),
    }
    if isinstance(corpus.files, FetchedFiles):
        source["files"] = journal.files
        if isinstance(corpus.files.source, HubFiles):
            source["revision"] = journal.state
    return Manifest(
        source=source,
        dtype=_dtype(tokenizer).name,
        tokenizer=TokenizerRecord(
            name=f"trained-{name}" if isinstance(name, int) else Path(name).name,
            # Already known unless it was trained here; slow to compute for a large vocabulary.
            fingerprint=journal.settings.get("tokenizer") or fingerprint(tokenizer),
            vocab_size=vocabulary(tokenizer),
            eos_id=tokenizer.eos_id,
        ),
        splits={
            split: Split(
                documents=sum(shard.documents for shard in shards),
                tokens=sum(shard.tokens for shard in shards),
                bytes=sum(shard.bytes for shard in shards),
                shards=tuple(shards),
            )
            for split, shards in sorted(journal.shards.items())
        },
    )
