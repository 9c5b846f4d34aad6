"""How fast `mixit-titan prepare` is, beside a plain loop of one process over the same texts.

    python benchmarks/prepare.py --source TEXT --tokenizer FILE.tiktoken --out runs/bench_prepare

Both go over the whole corpus, in turns, so that whatever else the machine does meets both. The loop
only encodes texts that are in memory. prepare also reads, checks, sends, writes and syncs. What the
machine allows at most is measured beside them: the same loop in so many processes at once, each
over its share of the texts, which read and write nothing. Two cores that share a cache or a clock
do not give twice the rate of one.
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
import tyro

from mixit_titan.atomic import write_text
from mixit_titan.data.prepare import prepare
from mixit_titan.data.sources import STDLIB, find_corpus
from mixit_titan.data.tokenizers import RankTokenizer, build_tokenizer


@dataclass(kw_only=True)
class Arguments:
    tokenizer: str
    """As in `mixit-titan prepare`."""
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
    rank = isinstance(tokenizer, RankTokenizer)
    encode = tokenizer.encoding.encode_ordinary if rank else tokenizer.encode
    loop, limit, prepared = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.parquet"  # as FineWeb-edu comes
        pq.write_table(pa.table({"text": texts}), corpus, row_group_size=1024)
        for number in range(args.rounds):
            start = time.perf_counter()
            tokens = sum(len(encode(text)) for text in texts)
            loop.append(tokens / (time.perf_counter() - start))
            limit.append(tokens / _at_once(encode, texts, args.workers))
            start = time.perf_counter()
            prepare(
                find_corpus(str(corpus)),
                args.tokenizer,
                Path(folder) / str(number),
                workers=args.workers,
            )
            prepared.append(tokens / (time.perf_counter() - start))
    return {
        "source": args.source,
        "tokenizer": Path(args.tokenizer).name,
        "workers": args.workers,
        "rounds": args.rounds,
        "documents": len(texts),
        "tokens": tokens,
        "loop_tokens_per_s": statistics.median(loop),
        "processes_tokens_per_s": statistics.median(limit),
        "prepare_tokens_per_s": statistics.median(prepared),
        "ratio": statistics.median(p / q for p, q in zip(prepared, loop, strict=True)),
        "limit": statistics.median(p / q for p, q in zip(limit, loop, strict=True)),
    }


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
    found = [text for _, text in find_corpus(args.source, local=args.local).documents()]
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
