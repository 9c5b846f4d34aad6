"""The order of all rows of a run: which source a place belongs to (mixture.py), and which row of
the source (passes.py). Its state is one number per source, the rows that were taken from it, and
how long a source was before it was extended."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mixit_titan.data.mixture import ALONE, Mixture, Weights
from mixit_titan.data.passes import Lengths, Passes
from mixit_titan.errors import ConfigError
from mixit_titan.files import json_text
from mixit_titan.json_form import COUNT, WrongForm, parse_json

_SAVED = [{"given": COUNT, "lengths": [[COUNT]]}]
_SEEDS = 48  # bits for the seed of a run; those above distinguish the sources


class Order:
    """The order of all rows, by place."""

    def __init__(
        self, rows: Sequence[int], weights: Sequence[Weights] = ALONE, *, seed: int
    ) -> None:
        """`rows` is the number of rows of each source."""
        self.mixture = Mixture(weights)
        self.passes = [
            Passes([(0, count)], seed=seed + (source << _SEEDS))
            for source, count in enumerate(rows)
        ]

    def find(self, places: np.ndarray) -> np.ndarray:
        """The source of each place, and the row of the source."""
        sources, nth = self.mixture.find(places)
        for source in np.unique(sources).tolist():
            here = sources == source
            nth[here] = self.passes[source].find(nth[here])
        return np.stack([sources, nth])

    def given(self, consumed: int) -> list[tuple[int, int]]:
        """For each source, its rows in the first `consumed` places, and how many times it has
        started again."""
        rows = self.mixture.given(consumed)
        return [(n, p.number(max(0, n - 1))) for n, p in zip(rows, self.passes, strict=True)]

    def state(self, consumed: int) -> str:
        """The state after `consumed` places, as JSON."""
        rows = self.mixture.given(consumed)
        return json_text(
            [{"given": n, "lengths": p.lengths} for n, p in zip(rows, self.passes, strict=True)]
        )

    def continue_from(self, state: str, consumed: int) -> None:
        """Resume from a state, also with sources that have been extended since. Refused if the
        weights would have given other rows than it has had."""
        saved = _read(state)
        if sum(source["given"] for source in saved) != consumed:
            # A run with data.path has saved nothing about sources.
            saved = [{"given": consumed, "lengths": self.passes[0].lengths}]
        ours = self.mixture.given(consumed)
        theirs = [source["given"] for source in saved]
        if theirs + [0] * (len(ours) - len(theirs)) != ours:
            raise ConfigError(
                f"the run cannot resume exactly, because it has read {theirs} rows of its sources, "
                f"and by the weights of data.sources it would be {ours}: keep the weights (and "
                "training.global_batch_size) as they were, and set new ones from a later step on, "
                "by tables with the same paths and `after`"
            )
        for source, before in enumerate(saved):
            self._continue(source, before["lengths"], theirs[source])

    def _continue(self, source: int, lengths: Lengths, given: int) -> None:
        passes = self.passes[source]
        before = Passes(lengths, seed=passes.seed)
        if before.rows > passes.rows:
            raise ConfigError(
                f"the run cannot resume exactly, because source {source + 1} of data.sources had "
                f"{before.rows:,} rows and now has {passes.rows:,}: name the original folder"
            )
        longer = before.rows < passes.rows
        self.passes[source] = before.lengthened(passes.rows, given) if longer else before


def _read(state: str) -> list[dict[str, Any]]:
    try:
        saved = parse_json(state.encode(), _SAVED)
        for source in saved:
            passes, rows = zip(*source["lengths"], strict=True)
            in_order = sorted(passes) == [*passes] and sorted(set(rows)) == [*rows]
            if passes[0] or rows[0] < 1 or not in_order:
                raise WrongForm("the lengths of a source do not increase")
    except (WrongForm, ValueError) as wrong:
        raise ConfigError(
            f"the checkpoint's record of its sources cannot be read ({wrong}): choose another one"
        ) from None
    return saved
