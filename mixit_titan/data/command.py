"""`mixit-titan prepare`: its options, its progress bar and what it prints."""

import functools
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from mixit_titan.data.corpus import Corpus
from mixit_titan.data.encoding import EncodedBatch
from mixit_titan.data.fast_encoder import EncoderName
from mixit_titan.data.fetching import FETCHED
from mixit_titan.data.mending import mend
from mixit_titan.data.packing_costs import packing_costs
from mixit_titan.data.prepare import SHARD_TOKENS, available_workers, prepare
from mixit_titan.data.shards import Manifest, Shard, is_prepared, read_manifest
from mixit_titan.data.sources import find_corpus
from mixit_titan.errors import ConfigError
from mixit_titan.fields import Group
from mixit_titan.ranges import COUNT, Range
from mixit_titan.tables import screen_table

_EXAMPLE = "train_configs/debug_mixit.toml"
_LENGTHS = (256, 512, 1024, 2048, 4096)


@dataclass(kw_only=True)
class PrepareArguments:
    """Tokenize a corpus into shards. If interrupted, the same command resumes.

    Example: mixit-titan prepare stdlib --tokenizer bytes --out data/stdlib
    """

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """fineweb-edu, wikitext-103, wikitext-2, stdlib (the Python standard library's sources), or a
    file or folder of .txt, .jsonl (also .gz, .zst) and .parquet, here or at s3://, gs:// or
    hf://datasets/OWNER/NAME/FOLDER."""
    out: Path
    """The folder of the shards; train on it with --data.path."""
    tokenizer: Annotated[str | None, Group("tokens")] = None
    """bytes, a file of ranks (.tiktoken, Llama-3's tokenizer.model), or a folder with a
    tokenizer.json."""
    train_tokenizer: Annotated[int | None, Range(least=1, most=2**24)] = None
    """Instead of --tokenizer: train a byte-level BPE with this many tokens on the corpus."""
    text_key: Annotated[str, Group("documents")] = "text"
    """The key of the text in the records of .jsonl and .parquet files."""
    local: str | None = None
    """The folder with the files of a corpus from the hub, if they are on this machine."""
    subset: str | None = None
    """The subset of fineweb-edu: sample-10BT (the default), sample-100BT, sample-350BT, default
    (all) or a crawl such as CC-MAIN-2024-10."""
    train_documents: Annotated[int | None, COUNT] = None
    """The first N documents are for training."""
    validation_documents: Annotated[int | None, COUNT] = None
    """The N documents after those are for validation (default: a twentieth as many; for fineweb-edu
    at most 4,096, for WikiText its own split)."""
    shard_tokens: Annotated[int, Range(least=1, most=2**40), Group("work")] = SHARD_TOKENS
    """A shard ends with the document that brings it to this many tokens."""
    workers: Annotated[int | None, Range(least=1, most=4096)] = None
    """Processes that tokenize (default: one per core). The shards do not depend on it."""
    encoder: EncoderName = "auto"
    """By default gigatoken, if it is installed and supports the tokenizer, else tiktoken (for
    ranks) or tokenizers (for a tokenizer.json). The shards do not depend on it."""
    keep: bool = False
    """Keep downloaded files in the folder `fetched` of --out; otherwise each is deleted once its
    documents are in complete shards."""
    verify: bool = False
    """Compute the checksums of all shards, and rebuild damaged ones from SOURCE, with the same
    bytes. Repeat the options that the folder was prepared with."""


def run_prepare(args: PrepareArguments) -> None:
    """Prepare the folder, or verify it, and say what came out and how to train on it."""
    if (args.tokenizer is None) == (args.train_tokenizer is None):
        raise ConfigError("give either --tokenizer, or the size of a new one by --train-tokenizer")
    corpus = find_corpus(
        args.source,
        local=args.local,
        subset=args.subset,
        text_key=args.text_key,
        train_documents=args.train_documents,
        validation_documents=args.validation_documents,
    )
    finished = is_prepared(args.out)
    if args.train_tokenizer and not finished:
        print("Training the tokenizer", file=sys.stderr)
    with Bar(corpus) as bar:
        given = {
            "workers": args.workers or available_workers(),
            "shard_tokens": args.shard_tokens,
            "encoder": args.encoder,
            "keep": args.keep,
            "say": functools.partial(print, file=sys.stderr),
            "on_start": bar.begin,
            "on_batch": bar.add,
        }
        tokenizer = args.tokenizer if args.train_tokenizer is None else args.train_tokenizer
        try:
            if not finished or not args.verify:
                prepare(corpus, tokenizer, args.out, **given)
            damaged = mend(corpus, tokenizer, args.out, **given) if args.verify else {}
        except KeyboardInterrupt:
            print("\nInterrupted. Run the same command to resume", file=sys.stderr)
            raise
    manifest = read_manifest(args.out)
    if not finished:
        _print_summary(manifest, args.out, bar)
        if args.train_tokenizer and manifest.tokenizer.vocab_size < args.train_tokenizer:
            print(f"The corpus has too little text for a vocabulary of {args.train_tokenizer:,}")
    elif damaged:
        said = "shard was" if len(damaged) == 1 else "shards were"
        print(f"{len(damaged)} damaged {said} rebuilt in {args.out}, with the same bytes")
    else:
        print(f"{args.out} is prepared and complete: nothing to do")
    if args.keep and (args.out / FETCHED).exists():
        print(f"The files of {args.source} are in {args.out / FETCHED}")
    words = ["mixit-titan", "train", _EXAMPLE, "--data.path", str(args.out)]
    print(f"Train on it, for example: {shlex.join(words)}")


class Bar:
    """A bar with documents, tokens and their rates. It is drawn by the main thread: workers are
    forked, and a fork beside another thread that writes may hang."""

    def __init__(self, corpus: Corpus) -> None:
        self.start = self.drawn = time.monotonic()
        self.documents = self.tokens = self.bytes = 0
        self.before: int | None = None  # finished by an earlier call, in the unit of the bar
        self.counted, total = corpus.expected()
        columns = (SpinnerColumn(), BarColumn(), TextColumn("{task.fields[note]}"))
        self.progress = Progress(
            *columns, TimeElapsedColumn(), console=Console(stderr=True), auto_refresh=False
        )
        self.task = self.progress.add_task("", total=total, note="")

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        if self.before is not None:
            self._draw()
            self.progress.stop()

    def begin(self, finished: list[Shard]) -> None:
        """Show the bar, with what earlier calls have finished."""
        self.before = sum(getattr(shard, self.counted) for shard in finished)
        self.progress.start()
        self._draw()

    def add(self, batch: EncodedBatch) -> None:
        """Count a batch."""
        self.documents += len(batch.lengths)
        self.tokens += len(batch.tokens)
        self.bytes += int(batch.bytes.sum())
        if time.monotonic() - self.drawn > 0.2:
            self._draw()

    def _draw(self) -> None:
        self.drawn = time.monotonic()
        completed = self.before + getattr(self, self.counted)
        self.progress.update(self.task, completed=completed, note=self.rates(), refresh=True)

    def rates(self) -> str:
        """Counts and rates of this call."""
        seconds = max(time.monotonic() - self.start, 1e-9)
        return (
            f"{self.documents:,} documents ({self.documents / seconds:,.0f}/s)  "
            f"{self.tokens:,} tokens ({self.tokens / seconds:,.0f}/s)"
        )


def _print_summary(manifest: Manifest, out: Path, bar: Bar) -> None:
    tokenizer = manifest.tokenizer
    header = ("split", "documents", "tokens", "bytes", "bytes/token", "shards")
    rows = []
    for name, split in manifest.splits.items():
        counts = [f"{count:,}" for count in (split.documents, split.tokens, split.bytes)]
        rows.append((name, *counts, f"{split.bytes / split.tokens:.2f}", len(split.shards)))
    title = f"{out}: {tokenizer.name}, {tokenizer.vocab_size:,} tokens"
    Console().print(screen_table(title, header, rows))
    print(f"In this call: {bar.rates()}")
    Console().print(_costs(manifest, out))


def _costs(manifest: Manifest, out: Path) -> Table:
    """The cost of packing for training, for the lengths of the flavors' rows and those around
    them."""
    ways = ("stream: documents split", "documents: tokens cut off", "documents: padding")
    header = ("training.seq_len", *ways)
    rows = [
        (length, *(f"{share:.1%}" for share in packing_costs(out, manifest, "train", length)))
        for length in _LENGTHS
    ]
    title = "Cost of data.packing for the training documents"
    return screen_table(title, header, rows)
