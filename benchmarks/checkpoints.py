"""The cost of verifying checksums while reading a checkpoint: DCP's reader beside ours, from the
page cache.

    python benchmarks/checkpoints.py --out runs/bench_checkpoints.json

One process reads, as one rank would read its share. Prints one JSON object and writes it to the
file.
"""

import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
import tyro

from mixit_titan.files import write_text
from mixit_titan.runtime.tensor_reader import load_state, write_checksums


@dataclass
class Arguments:
    """Time DCP's reader and ours on the same checkpoint."""

    out: Path = Path("runs/bench_checkpoints.json")
    tensors: int = 64
    """Tensors of 16 MiB each."""
    rounds: int = 5
    """Rounds of timed loads."""


def main(args: Arguments) -> None:
    """Measure, print and write the result."""
    warnings.filterwarnings("ignore", "torch.distributed is disabled")
    state = {f"w{n}": torch.randn(4096, 1024) for n in range(args.tensors)}
    megabytes = sum(tensor.nbytes for tensor in state.values()) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        dcp.save(state, checkpoint_id=folder, no_dist=True)
        write_checksums(Path(folder))
        readers: dict[str, Callable[[], None]] = {
            "dcp": lambda: dcp.load(state, checkpoint_id=folder, no_dist=True),
            "checked": lambda: load_state(folder, state, no_dist=True),
        }
        seconds = {name: [] for name in readers}
        for _ in range(args.rounds):
            for name, read in readers.items():
                begun = time.perf_counter()
                read()
                seconds[name].append(time.perf_counter() - begun)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    found = {
        "megabytes": round(megabytes),
        "mb_per_s": {name: round(megabytes / each) for name, each in medians.items()},
        "seconds_more_per_gb": round(1e3 * (medians["checked"] - medians["dcp"]) / megabytes, 2),
    }
    print(json.dumps(found))
    write_text(args.out, json.dumps(found) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Arguments))
