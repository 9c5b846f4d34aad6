"""How fast the generators of the tasks are, on one core: examples per second of CPU time.

    python benchmarks/tasks.py [--out tasks.json]

Each task is drawn at the paper's difficulty, in batches of 1,024 training examples, the test split
already taken out. The figure is the median of 9 rounds of about half a second each. CPU time, not
wall time: on a shared machine the two differ.
"""

import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from mixit_titan.tasks.options import preset_run

_BATCH, _ROUNDS, _SECONDS = 1024, 9, 0.5


@dataclass
class Arguments:
    tasks: tuple[str, ...] = ("retrieval", "hop", "addition", "dyck", "modular", "memorization")
    out: Path | None = None
    """A JSON file for the figures."""


def examples_per_second(name: str) -> list[float]:
    run = preset_run(name, "paper", [])
    fresh = 0 if name in ("retrieval", "hop", "addition", "dyck") else run.settings.train
    stream, _ = run.task.split(seed=0, train=fresh, test=run.settings.test)
    stream.batch(0, _BATCH)
    rounds, step = [], 1
    for _ in range(_ROUNDS):
        start, drawn = time.process_time(), 0
        while time.process_time() - start < _SECONDS:
            drawn += len(stream.batch(step, _BATCH))
            step += 1
        rounds.append(drawn / (time.process_time() - start))
    return rounds


def main() -> None:
    args = tyro.cli(Arguments)
    found = {}
    for name in args.tasks:
        rounds = examples_per_second(name)
        found[name] = {"median": statistics.median(rounds), "min": min(rounds), "max": max(rounds)}
        print(
            f"{name:<13} {found[name]['median']:>10,.0f} examples/s "
            f"({found[name]['min']:,.0f} to {found[name]['max']:,.0f})"
        )
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
