"""Section: the memory of the training runs, compared with what `mixit-titan params` estimates."""

from collections.abc import Iterator

from mixit_titan.gpu_check.check import Check, Verdict, failed, passed, skipped
from mixit_titan.gpu_check.estimated import estimated
from mixit_titan.gpu_check.runs import Runs
from mixit_titan.gpu_check.session import Session

SECTION = "memory"
TOLERANCE = 0.25
"""Allowed difference from the estimate. What is measured is the allocator's peak reservation."""


def memory(session: Session) -> Iterator[Check]:
    """Yield a check for one GPU, and one for all of them."""
    runs = Runs(session)
    names = {1: "one"} | {session.scale.ranks: "all" if session.scale.ranks > 1 else "one"}
    for ranks, name in names.items():
        yield session.check(
            SECTION,
            session.scale.on(ranks),
            lambda ranks=ranks, name=name: _compare(runs, name, ranks),
        )


def _compare(runs: Runs, name: str, ranks: int) -> Verdict:
    said = estimated(runs.scale, runs.scale.settings, ranks).memory.total / 2**30
    lines = runs.steps(name)
    figures = {"estimated_gib": said, "ranks": ranks}
    if not lines:
        return skipped("the run was not trained", **figures)
    if runs.scale.rehearsal:
        return skipped("needs a GPU: the memory of a process says nothing about it", **figures)
    measured = max(line["memory_gib"] for line in lines)
    figures |= {"measured_gib": measured}
    text = f"{measured:.1f} GiB, estimated {said:.1f}"
    return (
        passed(text, **figures) if abs(measured / said - 1) < TOLERANCE else failed(text, **figures)
    )
