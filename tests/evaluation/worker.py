"""One rank of `mixit-titan eval`, for `Forkserver.run_ranks`."""

from tests.forkserver import mixit_titan


def evaluate(ports: list[int], words: list[str]) -> None:
    mixit_titan("eval", *words)
