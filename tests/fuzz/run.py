"""Try many cases, and count how they ended."""

import itertools
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.forkserver import Forkserver
from tests.fuzz.attempt import SECONDS, BrokenPromise, attempt, check
from tests.fuzz.good import Good
from tests.fuzz.kinds import COSTLY, KINDS

COMMAND_MODULES = [
    *("mixit_titan.params", "mixit_titan.config.estimate", "mixit_titan.data.command"),
    *("mixit_titan.tasks.command", "mixit_titan.tasks.sweep", "mixit_titan.bench.command"),
    *("mixit_titan.slurm.submit", "mixit_titan.slurm.status", "mixit_titan.generation.command"),
    *("mixit_titan.export.command", "mixit_titan.analysis.command", "mixit_titan.doctor.command"),
    *("mixit_titan.drill.command", "mixit_titan.reproduction.command", "mixit_titan.suite.command"),
    *("mixit_titan.ladder.command", "mixit_titan.evaluation.command"),
    "mixit_titan.comparison.command",
]
"""What a server is to have imported, so that no attempt has to."""


def fuzz(
    server: Forkserver,
    good: Good,
    folder: Path,
    *,
    cases: Sequence[tuple[str, int]],
    seed: int = 0,
    seconds: float = SECONDS,
) -> Iterator[tuple[str, int | BrokenPromise]]:
    """For each case (a kind and a number) its kind, and the exit code or what went wrong. A case
    depends on its kind, its number and the seed alone: it can be tried again by itself. What did
    not end in time is tried once more after all the others: the machine may have been busy."""
    late: list[tuple[str, int]] = []
    for turn, (kind, number) in enumerate(itertools.chain(cases, late)):
        place = folder / f"{kind}-{number}"
        place.mkdir(parents=True)
        case = KINDS[kind](random.Random(f"{seed} {kind} {number}"), place, good)
        outcome = attempt(server, case.words, place, seconds=max(case.limit, seconds))
        if outcome.timed_out and turn < len(cases):
            shutil.rmtree(place, ignore_errors=True)
            late.append((kind, number))
            continue
        try:
            check(outcome, codes=case.codes, may_leave=case.may_leave)
        except BrokenPromise as error:
            yield kind, BrokenPromise(f"{kind} {number} of seed {seed}: {error}")
            continue  # what it left stays, to be looked at
        shutil.rmtree(place, ignore_errors=True)
        assert outcome.code is not None
        yield kind, outcome.code


def in_turn(count: int, kinds: Sequence[str]) -> list[tuple[str, int]]:
    """So many cases, the kinds one after the other; one that really trains comes less often."""
    cheap = [kind for kind in kinds if kind not in COSTLY]
    turn = [*(6 * cheap), *(kind for kind in kinds if kind in COSTLY)]
    counts: Counter[str] = Counter()
    cases = []
    for kind in itertools.islice(itertools.cycle(turn), count):
        cases.append((kind, counts[kind]))
        counts[kind] += 1
    return cases


def table(found: Counter[tuple[str, str]]) -> str:
    """Counts by kind and by how they ended."""
    ends = sorted({end for _, end in found})
    lines = [f"| kind | cases | {' | '.join(ends)} |", "|---|" + "---:|" * (1 + len(ends))]
    for kind in [*sorted({kind for kind, _ in found}), "all"]:
        row = [
            sum(n for (k, e), n in found.items() if e == end and kind in (k, "all")) for end in ends
        ]
        lines.append(f"| {kind} | {sum(row):,} | {' | '.join(f'{n:,}' for n in row)} |")
    return "\n".join(lines)
