"""No claim holds for models that have learned nothing, nor for models that took each other's place.

Exact counts, untrained models (Table 7) and throughput are about nothing that is learned: they are
only tested with figures that are all alike, and exchanged.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mixit_titan.reproduction.claims import Claim, Figures
from mixit_titan.reproduction.exhibit import Exhibit
from mixit_titan.reproduction.exhibits import EXHIBITS
from mixit_titan.reproduction.measured import Measured
from mixit_titan.reproduction.verdicts import judge

TWENTY = json.loads((Path(__file__).parent / "twenty_steps.json").read_text())
"""Recorded: `mixit-titan reproduce --steps 20 --seeds 2`, with reviews of films. Exhibit -> row ->
column -> the values of both seeds."""

CLAIMS = {c.id: (exhibit, c) for exhibit in EXHIBITS.values() for c in exhibit.claims}
EXACT = {"table4.counts"}
NOT_LEARNED = {*EXACT, "table7.random", "table7.mixit", "table7.order", "throughput.order"}
LEARNED = [id for id in CLAIMS if id not in NOT_LEARNED]

PAIRS = ("2", "6", "10")
GOOD: dict[str, Figures] = {exhibit.id: exhibit.paper for exhibit in EXHIBITS.values()}
"""The paper's, and what its figures without values look like."""
GOOD["figure2"] = {
    "standard": dict.fromkeys(PAIRS, 1.0),
    "frozen_mlp": dict.fromkeys(PAIRS, 1.0),
    "frozen_qk": dict(zip(PAIRS, (1.0, 0.99, 0.97), strict=True)),
    "mixit": dict(zip(PAIRS, (0.8, 0.35, 0.11), strict=True)),
}
GOOD["figure3"] = {
    "previous-token head": {"layer 1": 0.7, "layer 2": 0.2, "uniform": 0.17},
    "induction head": {"layer 1": 0.15, "layer 2": 0.9, "uniform": 0.1},
    "the model": {"accuracy": 0.97},
}
CHANCE = {
    **{"addition": 0.1, "Dyck-1": 0.5, "modular": 1 / 599, "memorization": 1 / 512, "Yelp": 0.5},
    **{"k-hop": 0.25, "retrieval": 1 / 128, "accuracy": 1 / 512, "bits per parameter": 0.01},
    **{"WikiText-103": 11.76, "FineWeb-edu": 11.76},  # ln 128,256
    **{"ratio to standard": 1.0, "samples/s": 1000.0, "trained": 1.0},
    **{"layer 1": 0.1, "layer 2": 0.1, "uniform": 0.1},
}


def at_chance(exhibit: str, row: str, column: str) -> float:
    by_row = {"table5": CHANCE.get(row), "table6": 0.1, "table7": 0.01, "figure2": 1 / 128}
    return by_row[exhibit] if exhibit in by_row else CHANCE[column]


def all_at_chance(exhibit: str) -> Figures:
    return {r: {c: at_chance(exhibit, r, c) for c in row} for r, row in GOOD[exhibit].items()}


def verdict(id: str, figures: Figures) -> str:
    """Of figures that no seed changes, so that the interval does not help."""
    exhibit, claim = CLAIMS[id]
    ours = {
        r: {c: Measured({"0": v}, exact=True) for c, v in row.items()} for r, row in figures.items()
    }
    (found,) = judge([claim], exhibit.paper, ours, exhibit.units)
    return found["verdict"]


@pytest.mark.parametrize("id", CLAIMS)
def test_every_claim_holds_for_good_figures(id: str) -> None:
    """Else what follows would prove nothing."""
    assert verdict(id, GOOD[CLAIMS[id][0].id]) == "holds"


@pytest.mark.parametrize("id", CLAIMS)
def test_no_claim_holds_at_chance(id: str) -> None:
    assert verdict(id, all_at_chance(CLAIMS[id][0].id)) == "does not hold"


@pytest.mark.parametrize("id", [id for id in CLAIMS if id.startswith(("figure2", "table1.ret"))])
def test_a_guess_among_the_values_of_a_sequence_is_chance_too(id: str) -> None:
    """With at most M pairs it is right in the mean of 1/m over m = 1..M: it falls as MixiT does."""
    guess = {M: sum(1 / m for m in range(1, int(M) + 1)) / int(M) for M in PAIRS}
    columns = guess if id.startswith("figure2") else {"retrieval": guess["10"]}
    figures = {row: columns for row in GOOD["figure2"]}
    assert verdict(id, figures) == "does not hold"


def exchanged(exhibit: Exhibit, claim: Claim) -> Iterator[Figures]:
    """The rows in reverse; where rows are not models, the columns. Table 3 has all models alike, as
    has Table 5 all heads for Yelp: there each in turn is at chance."""
    good = GOOD[exhibit.id]
    if exhibit.id == "table3":
        for row in good:
            one = {c: at_chance(exhibit.id, row, c) for c in good[row]}
            yield {**good, row: one}
    elif claim.id == "table5.yelp":
        for column in good["Yelp"]:
            yield {**good, "Yelp": {**good["Yelp"], column: 0.5}}
    elif exhibit.id == "table5":
        yield {name: _reversed(row) for name, row in good.items()}
    elif exhibit.id == "figure3":
        layers = {"layer 1": "layer 2", "layer 2": "layer 1"}
        yield {name: {c: row[layers.get(c, c)] for c in row} for name, row in good.items()}
    else:
        yield _reversed(good)


def _reversed(row: dict) -> dict:
    return dict(zip(row, reversed(row.values()), strict=True))


@pytest.mark.parametrize("id", CLAIMS)
def test_no_claim_holds_for_exchanged_models(id: str) -> None:
    for figures in exchanged(*CLAIMS[id]):
        assert verdict(id, figures) == "does not hold"


@pytest.mark.parametrize("id", LEARNED)
def test_no_claim_holds_after_twenty_steps(id: str) -> None:
    exhibit, claim = CLAIMS[id]
    recorded = TWENTY[exhibit.id]
    ours = {
        row: {c: Measured(dict(zip("01", both, strict=False))) for c, both in columns.items()}
        for row, columns in recorded.items()
    }
    (found,) = judge([claim], exhibit.paper, ours, exhibit.units)
    assert found["verdict"] in ("does not hold", "undecided") and found["unmet"]
    means = {row: {c: sum(v) / len(v) for c, v in cols.items()} for row, cols in recorded.items()}
    assert verdict(id, means) == "does not hold"


def test_every_claim_about_learning_needs_a_level() -> None:
    assert {id for id, (_, claim) in CLAIMS.items() if not claim.needs} == NOT_LEARNED
