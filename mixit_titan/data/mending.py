"""Rebuilds damaged token shards of a prepared folder from the source.

A shard contains known documents of its split, so only those are read and encoded. The rebuilt files
replace the damaged ones if they have the checksums of the manifest: either they are the same bytes,
or nothing is changed.
"""

import contextlib
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

from mixit_titan.data.corpus import Corpus
from mixit_titan.data.encoding import EncodedBatch, Encoder
from mixit_titan.data.fast_encoder import EncoderName, FastEncoder, choose_encoder
from mixit_titan.data.fetching import FETCHED, FetchedFiles
from mixit_titan.data.journal import alone, check_same
from mixit_titan.data.prepare import identify, save_tokenizer
from mixit_titan.data.shards import AGAIN, Manifest, Shard, read_manifest
from mixit_titan.data.splits import FileEnd, chosen, unneeded
from mixit_titan.data.tokenizers import build_tokenizer, saved_tokenizer
from mixit_titan.data.verification import check_tokenizer, damaged, verify
from mixit_titan.data.workers import DocumentDiffers, encoded
from mixit_titan.data.writer import SplitWriter
from mixit_titan.errors import ConfigError
from mixit_titan.files import writing
from mixit_titan.log import logger
from mixit_titan.reading import WrongFile


def mend(
    corpus: Corpus,
    tokenizer: str | int,
    folder: Path,
    *,
    workers: int,
    shard_tokens: int,
    encoder: EncoderName = "auto",
    keep: bool = False,
    say: Callable[[str], None] = logger.info,
    on_start: Callable[[list[Shard]], None] = lambda whole: None,
    on_batch: Callable[[EncodedBatch], None] = lambda batch: None,
) -> dict[str, str]:
    """Compute the checksums of all shards of a prepared folder, and rebuild the damaged ones. The
    arguments must be those that it was prepared with. Returns what was wrong, by shard."""
    settings, built = identify(corpus, tokenizer, shard_tokens)
    with alone(folder, wait=False):
        manifest = read_manifest(folder)
        check_same(manifest.source.get("settings", {}), settings, folder)
        keep = keep or (folder / FETCHED).exists()  # they were kept before
        corpus = corpus.at(manifest.source.get("revision")).fetched_to(folder, keep=keep)
        _mend_tokenizer(
            folder, manifest, lambda: save_tokenizer(folder, tokenizer, built, corpus), say
        )
        found = damaged(folder, manifest)
        if found:
            for problem in found.values():
                say(problem)
            own = build_tokenizer(saved_tokenizer(folder) or "bytes")
            encode, said = choose_encoder(own, manifest.id_dtype, encoder)
            say(said)
            shards = chain.from_iterable(split.shards for split in manifest.splits.values())
            on_start([shard for shard in shards if shard.name not in found])
            _write_again(folder, manifest, {*found}, corpus, encode, workers, on_batch)
        verify(folder)
        if isinstance(corpus.files, FetchedFiles):
            corpus.files.close()
    return found


def _mend_tokenizer(
    folder: Path, manifest: Manifest, save: Callable[[], object], say: Callable[[str], None]
) -> None:
    try:
        check_tokenizer(folder, manifest)
    except ConfigError:
        with writing(folder):
            shutil.rmtree(folder / "tokenizer", ignore_errors=True)
            save()
        check_tokenizer(folder, manifest, AGAIN)
        say(f"{folder / 'tokenizer'} was damaged: its files have been restored")


def _write_again(
    folder: Path,
    manifest: Manifest,
    names: set[str],
    corpus: Corpus,
    encoder: Encoder | FastEncoder,
    workers: int,
    on_batch: Callable[[EncodedBatch], None],
) -> None:
    for part in folder.glob(".*.part"):  # of an earlier call
        part.unlink()
    wanted, tokens = {}, manifest.source["settings"]["shard_tokens"]
    with contextlib.ExitStack() as stack:
        writers = {}
        for name, split in manifest.splits.items():
            wanted[name] = _joined(_documents(split.shards, names))
            shards = [shard for shard in split.shards if shard.name in names]
            for path in chain.from_iterable(shard.files(folder).values() for shard in shards):
                if path.is_dir():
                    raise WrongFile(path, "it is a folder", "remove it")
            writer = MendingWriter(folder, corpus.name, tokens, shards)
            writers[name] = stack.enter_context(writer)
        if isinstance(corpus.files, FetchedFiles):
            counted = manifest.source.get("files", {})
            corpus.files.unneeded = unneeded(corpus.files.names, counted, wanted)
        try:
            for batch in encoded(chosen(corpus.parts(), wanted), encoder, workers):
                if isinstance(batch, FileEnd):
                    corpus.files.release(batch.name)
                    continue
                with writing(folder):
                    writers[batch.split].add(batch)
                on_batch(batch)
        except DocumentDiffers:
            raise ConfigError(
                f"gigatoken does not give all documents the same ids as {encoder.exact.name}: run "
                f"the same command with --encoder {encoder.exact.name}"
            ) from None
        with writing(folder):
            for writer in writers.values():
                writer.finish()
                writer.check_complete()


class MendingWriter(SplitWriter):
    """Writes shards that are in the manifest: the documents of one split, one shard after
    another."""

    def __init__(self, folder: Path, source: str, shard_tokens: int, shards: list[Shard]) -> None:
        self.folder, self.source, self.shard_tokens = folder, source, shard_tokens
        self.files = {}
        self.left = deque(shards)

    @property
    def name(self) -> str:
        """The name of the shard that is being written."""
        return self.left[0].name

    def finish(self) -> None:
        """Finish a shard; raise a ConfigError if it is not the one in the manifest."""
        made = {ending: file.hash.hexdigest() for ending, file in self.files.items()}
        if self.files and made != self.left[0].sha256:
            raise self._changed()
        super().finish()

    def enter(self, shard: Shard) -> None:
        """Go on to the next shard."""
        self.left.popleft()

    def check_complete(self) -> None:
        """Raise a ConfigError unless all shards have been written."""
        if self.left:
            raise self._changed()

    def _changed(self) -> ConfigError:
        return ConfigError(
            f"{self.source} has changed since {self.folder} was prepared, and no longer gives "
            f"{self.name}: restore the files that it was made from, or delete the folder and "
            "prepare it again"
        )


def _documents(shards: Iterable[Shard], names: set[str]) -> Iterator[range]:
    """The numbers of the documents in some of a split's shards."""
    first = 0
    for shard in shards:
        if shard.name in names:
            yield range(first, first + shard.documents)
        first += shard.documents


def _joined(ranges: Iterable[range]) -> list[range]:
    found: list[range] = []
    for some in ranges:
        if found and found[-1].stop == some.start:
            some = range(found.pop().start, some.stop)
        found.append(some)
    return found
