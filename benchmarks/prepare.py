"""How fast `mixit-titan prepare` is, beside a plain loop of one process over the same texts.

    python benchmarks/prepare.py --source TEXT --tokenizer FILE.tiktoken --out runs/bench_prepare

All go over the whole corpus, in turns, so that whatever else the machine does meets each. The loop
only encodes texts that are in memory. prepare also reads, checks, sends, writes and syncs. `plain`
is the loop with the pattern that tiktoken publishes for GPT-2's ranks, `loop` the one with ours,
which cuts the same pieces faster (mixit_titan/data/tokenizers.py). What the machine allows at most
is measured beside them: `loop` in so many processes at once, each over its share of the texts,
which read and write nothing. Two cores that share a cache or a clock do not give twice the rate of
one.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import tiktoken
import tyro
from tiktoken_ext.openai_public import r50k_pat_str

from mixit_titan.data.prepare import prepare
from mixit_titan.data.sources import STDLIB, find_corpus
from mixit_titan.data.tokenizers import build_tokenizer
from mixit_titan.files import write_text


@dataclass(kw_only=True)
class Arguments:
    tokenizer: str
    """A file of GPT-2's ranks, `r50k_base.tiktoken`."""
    source: str = STDLIB
    local: str | None = None
    workers: int = 2
    rounds: int = 5
    megabytes: int = 192
    """The texts are repeated until they are so many: short runs measure the start."""
    out: Path = Path("runs/bench_prepare")


def measure(args: Arguments) -> dict:
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
    seconds: dict[str, list[float]] = {"plain": [], "loop": [], "processes": [], "prepare": []}
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.parquet"  # as FineWeb-edu comes
        pq.write_table(pa.table({"text": texts}), corpus, row_group_size=1024)
        for number in range(args.rounds):
            start = time.perf_counter()
            tokens = sum(len(published.encode_ordinary(text)) for text in texts)
            seconds["plain"].append(time.perf_counter() - start)
            start = time.perf_counter()
            again = sum(len(encoding.encode_ordinary(text)) for text in texts)
            seconds["loop"].append(time.perf_counter() - start)
            assert again == tokens
            seconds["processes"].append(_at_once(encoding.encode_ordinary, texts, args.workers))
            start = time.perf_counter()
            prepare(
                find_corpus(str(corpus)),
                args.tokenizer,
                Path(folder) / str(number),
                workers=args.workers,
            )
            seconds["prepare"].append(time.perf_counter() - start)
    return {
        "source": args.source,
        "tokenizer": Path(args.tokenizer).name,
        "workers": args.workers,
        "rounds": args.rounds,
        "documents": len(texts),
        "tokens": tokens,
        "tokens_per_s": {way: tokens / statistics.median(s) for way, s in seconds.items()},
        "ratio_to_plain": _ratio(seconds, "prepare", "plain"),
        "ratio_to_loop": _ratio(seconds, "prepare", "loop"),
        "limit_to_loop": _ratio(seconds, "processes", "loop"),
    }


def _ratio(seconds: dict[str, list[float]], way: str, other: str) -> float:
    """Of the rates, each round by itself."""
    return statistics.median(q / p for p, q in zip(seconds[way], seconds[other], strict=True))


def _at_once(encode: Callable[[str], list[int]], texts: list[str], workers: int) -> float:
    """Seconds until the last of the processes is done."""
    start = time.perf_counter()
    children = []
    for number in range(workers):
        child = os.fork()
        if not child:
            for text in texts[number::workers]:
                encode(text)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return time.perf_counter() - start


def _texts(args: Arguments) -> list[str]:
    found = [text.decode() for _, text in find_corpus(args.source, local=args.local).documents()]
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
