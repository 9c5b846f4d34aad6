"""How fast the generators of the tasks are on one core: examples per second of CPU time.

    python benchmarks/tasks.py [--out tasks.json]

Each task is drawn in batches of 1,024 training examples, with the test split already taken out:
tasks of the MixiT paper at its difficulty, the others with sequences of 64 tokens. The figure is
the median of 9 rounds of about half a second of CPU time each; on a shared machine wall time
differs.
"""

import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from mixit_titan.tasks.options import parse, preset_run
from mixit_titan.tasks.settings import Run
from mixit_titan.tasks.task import task_class

_BATCH, _ROUNDS, _SECONDS = 1024, 9, 0.5
_DIFFICULTY = {
    "retrieval": "",
    "hop": "",
    "addition": "",
    "dyck": "",
    "modular": "",
    "memorization": "",
    "mqar": "--length 64 --pairs 16",
    "mad_recall": "--length 64",
    "mad_fuzzy_recall": "--length 64",
    "mad_noisy_recall": "--length 64",
    "mad_selective_copying": "--length 64",
    "mad_compression": "--length 64",
    "mad_memorization": "--length 64",
    "induction": "--max-gap 57 --pattern 4",
    "sorting": "--length 32",
    "dyck_k": "--length 64",
    "parity": "--length 64",
    "modular_sum": "--length 64",
}


@dataclass
class Arguments:
    """Measure the generators."""

    tasks: tuple[str, ...] = tuple(_DIFFICULTY)
    out: Path | None = None
    """A JSON file for the results."""


def examples_per_second(name: str) -> list[float]:
    """The rates of all rounds for one task."""
    words = _DIFFICULTY[name].split()
    run = parse(Run[task_class(name)], preset_run(name, "paper", []), name, words)
    train = run.settings.train if name in ("modular", "memorization") else 0
    stream, _ = run.task.split(seed=0, train=train, test=run.settings.test)
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
    """Measure all tasks and print their rates."""
    args = tyro.cli(Arguments)
    found = {}
    for name in args.tasks:
        rounds = examples_per_second(name)
        found[name] = {"median": statistics.median(rounds), "min": min(rounds), "max": max(rounds)}
        print(
            f"{name:<21} {found[name]['median']:>10,.0f} examples/s "
            f"({found[name]['min']:,.0f} to {found[name]['max']:,.0f})"
        )
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
