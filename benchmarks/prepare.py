"""How fast `mixit-titan prepare` is, compared to a plain loop of one process over the same texts.

    python benchmarks/prepare.py --source TEXT --tokenizer FILE.tiktoken --out runs/bench_prepare

All process the complete corpus in turn, so that other load on the machine affects all alike. The
loop only encodes texts that are in memory; `plain` uses the pattern that tiktoken publishes for
GPT-2's ranks, `loop` ours, which cuts the same pieces faster (mixit_titan/data/rank_tokenizer.py).
`prepare` also reads a parquet file, checks, sends, hashes, writes and syncs: with gigatoken in one
process (`one worker`) and in several (`prepare`), and with tiktoken (`prepare, tiktoken`). `stages`
are its parts, each alone in one process: the slowest part that the parent does alone (hashing the
tokens) limits many workers.

The texts are repeated, so that gigatoken has cached most words: `encoding, first` is its rate on
texts without a cached word.
"""

import hashlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tiktoken
import tyro
from tiktoken_ext.openai_public import r50k_pat_str
from torchtitan.components.tokenizer import BaseTokenizer

from mixit_titan.data.fast_encoder import EncoderName, choose_encoder
from mixit_titan.data.prepare import prepare
from mixit_titan.data.readers import read_row_group
from mixit_titan.data.sources import STDLIB, find_corpus
from mixit_titan.data.tokenizers import build_tokenizer
from mixit_titan.files import write_text


@dataclass(kw_only=True)
class Arguments:
    """Measure `prepare` and its stages."""

    tokenizer: str
    """A file of GPT-2's ranks, `r50k_base.tiktoken`."""
    source: str = STDLIB
    local: str | None = None
    workers: int = 2
    rounds: int = 3
    megabytes: int = 512
    """The texts are repeated up to this size, because short runs measure the startup."""
    out: Path = Path("runs/bench_prepare")


def measure(args: Arguments) -> dict:
    """Measure all encoders in turn."""
    texts = _texts(args)
    tokenizer = build_tokenizer(args.tokenizer)
    if getattr(tokenizer, "pattern", None) != r50k_pat_str:
        raise SystemExit(f"{args.tokenizer} is no file of GPT-2's ranks: name r50k_base.tiktoken")
    encoding = tokenizer.encoding
    published = tiktoken.Encoding(
        "published",
        pat_str=r50k_pat_str,
        mergeable_ranks=encoding._mergeable_ranks,
        special_tokens={},
    )
    ways = ("plain", "loop", "prepare, tiktoken", "one worker", "prepare")
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    cpu: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.parquet"  # as FineWeb-edu comes
        pq.write_table(pa.table({"text": texts}), corpus, row_group_size=1024)

        def prepared(workers: int, encoder: EncoderName) -> int:
            """Into a folder that is deleted."""
            with tempfile.TemporaryDirectory(dir=folder) as out:
                arguments = {"workers": workers, "encoder": encoder}
                splits = prepare(
                    find_corpus(str(corpus)), args.tokenizer, Path(out), **arguments
                ).splits
            return sum(split.tokens - split.documents for split in splits.values())

        runs: dict[str, Callable[[], int]] = {
            "plain": lambda: sum(len(published.encode_ordinary(text)) for text in texts),
            "loop": lambda: sum(len(encoding.encode_ordinary(text)) for text in texts),
            "prepare, tiktoken": lambda: prepared(args.workers, "tiktoken"),
            "one worker": lambda: prepared(1, "gigatoken"),
            "prepare": lambda: prepared(args.workers, "gigatoken"),
        }
        counts = set()
        for _ in range(args.rounds):
            for way, run in runs.items():
                start, used = time.perf_counter(), _cpu()
                counts.add(run())
                seconds[way].append(time.perf_counter() - start)
                cpu[way].append(_cpu() - used)
        (tokens,) = counts
        stages = _stages(corpus, tokenizer)
    return {
        "source": args.source,
        "tokenizer": Path(args.tokenizer).name,
        "workers": args.workers,
        "rounds": args.rounds,
        "documents": len(texts),
        "megabytes": args.megabytes,
        "tokens": tokens,
        "tokens_per_s": {way: tokens / statistics.median(s) for way, s in seconds.items()},
        "tokens_per_cpu_s": {way: tokens / statistics.median(s) for way, s in cpu.items()},
        "ratio_to_plain": _ratio(seconds, "prepare", "plain"),
        "ratio_to_loop": _ratio(seconds, "prepare", "loop"),
        "cpu_ratio_to_plain": _ratio(cpu, "prepare", "plain"),
        "ratio_to_one_worker": _ratio(seconds, "prepare", "one worker"),
        "rounds_to_plain": _ratios(seconds, "prepare", "plain"),
        "rounds_to_one_worker": _ratios(seconds, "prepare", "one worker"),
        "stages_mb_per_cpu_s": stages,
    }


def _cpu() -> float:
    """Seconds that this process and those that it has started and that have ended have used."""
    return sum(os.times()[:4])


def _stages(corpus: Path, tokenizer: BaseTokenizer) -> dict[str, float]:
    """Megabytes of text per second of one process."""
    seconds: dict[str, float] = dict.fromkeys(
        ("reading", "splitting", "encoding, first", "encoding", "hashing the tokens"), 0.0
    )
    encoder, _ = choose_encoder(tokenizer, np.dtype("<u2"), "gigatoken")
    sizes = dict.fromkeys(seconds, 0)
    met = set()

    def spent(stage: str, size: int, begun: float) -> None:
        seconds[stage] += time.process_time() - begun
        sizes[stage] += size

    for part in find_corpus(str(corpus)).parts():
        begun = time.process_time()
        texts = list(read_row_group(part.file, part.number, part.text_key, part.first_row))
        size = sum(map(len, texts))
        spent("reading", size, begun)
        begun = time.process_time()
        for place, text in enumerate(texts):
            part.rule.split(place, text)
        spent("splitting", size, begun)
        begun = time.process_time()
        tokens, _ = encoder.encode(texts)
        spent("encoding" if texts[0] in met else "encoding, first", size, begun)
        met.update(texts)
        begun = time.process_time()
        hashlib.sha256(tokens).hexdigest()
        spent("hashing the tokens", size, begun)
    return {stage: sizes[stage] / max(seconds[stage], 1e-9) / 1e6 for stage in seconds}


def _ratio(seconds: dict[str, list[float]], way: str, other: str) -> float:
    return statistics.median(_ratios(seconds, way, other))


def _ratios(seconds: dict[str, list[float]], way: str, other: str) -> list[float]:
    """Of the rates, each round by itself."""
    return [q / p for p, q in zip(seconds[way], seconds[other], strict=True)]


def _texts(args: Arguments) -> list[str]:
    corpus = find_corpus(args.source, local=args.local).fetched_to(args.out, keep=True)
    found = [text.decode() for _, text in corpus.documents()]
    texts, size = [], 0
    for text in cycle(found):
        if size >= args.megabytes * 10**6:
            return texts
        texts.append(text)
        size += len(text.encode())


if __name__ == "__main__":
    arguments = tyro.cli(Arguments, description=__doc__)
    result = measure(arguments)
    write_text(arguments.out / "prepare.json", json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
