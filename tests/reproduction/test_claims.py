"""Each kind of claim on figures made by hand: that hold, that do not, and that are missing."""

import pytest

from mixit_titan.reproduction.claims import Claim, Figures, Missing
from mixit_titan.reproduction.exhibits import EXHIBITS


def claim(id: str) -> Claim:
    (found,) = [c for exhibit in EXHIBITS.values() for c in exhibit.claims if c.id == id]
    return found


def judge(id: str, figures: Figures) -> bool | None:
    """Whether it is right, whatever level it needs; None where a figure is missing."""
    try:
        return claim(id).right(figures)
    except Missing:
        return None


def one(column: str, **rows: float | None) -> Figures:
    return {row: {column: number} for row, number in rows.items()}


def four(column: str, *numbers: float | None) -> Figures:
    rows = ("standard", "frozen_mlp", "frozen_qk", "mixit")
    return one(column, **dict(zip(rows, numbers, strict=True)))


def over(row: str, *numbers: float | None) -> Figures:
    return {row: {str(2**n): number for n, number in enumerate(numbers, 1)}}


CASES: list[tuple[str, Figures, bool | None]] = [
    ("table1.hop.order", four("k-hop", 1, 0.98, 0.9, 0.5), True),
    # Within a point is a tie of the first two, two points are not; the others have none.
    ("table1.hop.order", four("k-hop", 0.995, 1, 0.9, 0.5), True),
    ("table1.hop.order", four("k-hop", 1, 0.9, 0.905, 0.5), False),
    ("table1.hop.order", four("k-hop", 1, 0.9, 0.9, 0.5), False),
    ("table1.hop.order", four("k-hop", 0.98, 1, 0.9, 0.5), False),
    ("table1.hop.order", four("k-hop", 1, 1, 0.4, 0.5), False),
    # Four at chance are no order.
    ("table1.hop.order", four("k-hop", 0.25, 0.25, 0.25, 0.25), False),
    ("table1.hop.order", four("k-hop", 1, None, 0.9, 0.5), None),
    ("table1.retrieval.gap", one("retrieval", frozen_qk=0.9, mixit=0.69), True),
    ("table1.retrieval.gap", one("retrieval", frozen_qk=0.9, mixit=0.71), False),
    ("table1.retrieval.gap", one("retrieval", frozen_qk=0.9), None),
    ("figure2.mixit", over("mixit", 1.0, 0.9, 0.7), True),
    ("figure2.mixit", over("mixit", 1.0, 0.5, 0.9), False),
    ("figure2.mixit", over("mixit", 1.0), None),
    ("figure2.frozen_qk", over("mixit", 1.0, 0.7, 0.5) | over("frozen_qk", 1.0, 0.9, 0.6), True),
    ("figure2.frozen_qk", over("mixit", 1.0, 0.7, 0.5) | over("frozen_qk", 1.0, 0.79, 0.6), False),
    ("figure2.frozen_qk", over("mixit", 1.0, 0.7, 0.5) | over("frozen_qk", 1.0, 0.9, 0.4), False),
    ("figure2.frozen_qk", over("mixit", 1.0, 0.9, 0.9) | over("frozen_qk", 1.0, 1.0, 1.0), False),
    ("figure2.frozen_qk", over("mixit", 1.0, 0.7) | over("frozen_qk", 1.0, 0.9, 0.6), None),
    ("figure2.others", over("standard", 1, 0.96) | over("frozen_mlp", 0.9, 1), True),
    ("figure2.others", over("standard", 1, 0.96) | over("frozen_mlp", 1, 0.94), False),
    ("table2.order", one("Python sources", standard=1.9, frozen_qk=2.4, mixit=2.5), True),
    ("table2.order", one("Python sources", standard=1.9, frozen_qk=2.5, mixit=2.5), False),
    ("table2.order", one("Python sources", standard=1.9, frozen_qk=2.6, mixit=2.5), False),
    ("table2.order", one("Python sources", standard=None, frozen_qk=2.6, mixit=2.5), None),
    ("table2.order", {}, None),
    # In every text that there is.
    (
        "table2.order",
        {
            row: {"Python sources": number, "your text": other}
            for row, number, other in (
                ("standard", 1.9, 1.9),
                ("frozen_qk", 2.4, 1.8),
                ("mixit", 2.5, 2.5),
            )
        },
        False,
    ),
    ("table3.dyck", one("Dyck-1", standard=0.95, frozen_qk=0.93, mixit=0.99), True),
    ("table3.dyck", one("Dyck-1", standard=0.95, frozen_qk=0.95, mixit=0.91), False),
    ("table4.accuracy", four("accuracy", 1, 0.2, 0.7, 0.72), True),
    ("table4.accuracy", four("accuracy", 1, 0.3, 0.7, 0.2), False),
    ("table4.counts", four("trained", 790400, 394880, 724352, 724736), True),
    ("table4.counts", four("trained", 790400, 394880, 724352, 724737), False),
    ("table5.addition", over("addition", 0.3, 0.2, 0.5), True),
    ("table5.addition", over("addition", 0.3, 0.9, 0.35), False),
    ("table5.yelp", over("Yelp", 0.92, 0.90), True),
    ("table5.yelp", over("Yelp", 0.92, 0.88, 0.92), False),
    ("table6.mixit", over("mixit", 1.0, 0.98, 1.0), True),
    ("table6.mixit", over("mixit", 1.0, 0.96, 1.0), False),
    ("table6.random", over("random", 1.0, 0.3), True),
    ("table6.random", over("random", 1.0, 0.91), False),
    ("table6.gap", over("mixit", 1.0, 0.9) | over("random", 1.0, 0.6), True),
    ("table6.gap", over("mixit", 1.0, 0.9) | over("random", 0.1, 0.8), False),
    ("table6.gap", over("mixit", 1.0, 0.9) | over("random", 0.1, 0.2, 0.3), None),
    ("table6.random", over("random", 1.0, None), None),
    ("table7.random", over("random", 0.002, 0.05), True),
    ("table7.random", over("random", 0.002, 0.003), False),
    ("table7.mixit", over("mixit", 0.1, 0.9) | over("random", 0.2, 0.9, 4.0), True),
    ("table7.mixit", over("mixit", 0.1, 1.1) | over("random", 0.2, 0.9, 4.0), False),
    ("table7.mixit", over("random", 0.2, 0.9, 4.0), None),
    ("table7.order", over("mixit", 0.1, 0.1) | over("random", 0.2, 0.3), True),
    ("table7.order", over("mixit", 0.1, 0.3) | over("random", 0.2, 0.3), False),
    ("throughput.order", one("ratio to standard", standard=1, frozen_qk=1.2, mixit=1.3), True),
    ("throughput.order", one("ratio to standard", standard=1, frozen_qk=0.99, mixit=1.3), False),
]


@pytest.mark.parametrize(("id", "figures", "expected"), CASES)
def test_arithmetic_decides(id: str, figures: Figures, expected: bool | None) -> None:
    assert judge(id, figures) is expected


def heads(previous: tuple[float, float], induction: tuple[float, float]) -> Figures:
    """The best share of each layer, where uniform attention has 0.2."""
    names = {"previous-token head": previous, "induction head": induction}
    return {
        name: {"layer 1": first, "layer 2": second, "uniform": 0.2}
        for name, (first, second) in names.items()
    }


@pytest.mark.parametrize(
    ("figures", "previous", "induction"),
    [
        (heads((0.5, 0.3), (0.3, 0.9)), True, True),
        (heads((0.5, 0.6), (0.3, 0.9)), False, True),
        (heads((0.8, 0.3), (0.2, 0.3)), True, False),
        (heads((0.3, 0.2), (0.9, 0.5)), False, False),
        ({}, None, None),
    ],
)
def test_the_two_heads_of_figure_3(
    figures: Figures, previous: bool | None, induction: bool | None
) -> None:
    assert judge("figure3.previous", figures) is previous
    assert judge("figure3.induction", figures) is induction


@pytest.mark.parametrize(
    ("id", "figures", "effect"),
    [
        ("table1.hop.order", four("k-hop", 1, 0.98, 0.9, 0.5), 0.5),
        ("table1.hop.gap", four("k-hop", 1, 0.98, 0.9, 0.5), 0.4),
        ("table2.order", one("Python sources", standard=2, frozen_qk=2.4, mixit=3), 1.5),
        ("table3.dyck", one("Dyck-1", standard=0.95, frozen_qk=0.93, mixit=0.99), -0.02),
        ("table4.counts", four("trained", 790400, 394880, 724352, 724736), 1),
        ("table5.addition", over("addition", 0.3, 0.2, 0.5), 0.2),
        ("table5.yelp", over("Yelp", 0.92, 0.90, 0.95), -0.02),
        ("table6.gap", over("mixit", 1.0, 0.9) | over("random", 1.0, 0.6), 0.3),
        ("table7.random", over("random", 0.002, 0.05), 25),
        ("table7.mixit", over("mixit", 0.1, 0.4) | over("random", 0.2, 0.9, 4.0), 5),
        ("table7.order", over("mixit", 0.1, 0.1) | over("random", 0.2, 0.3), 2),
        ("figure2.frozen_qk", over("mixit", 1.0, 0.3) | over("frozen_qk", 1.0, 0.9), 0.6),
        ("figure3.previous", heads((0.5, 0.3), (0.3, 0.9)), 2.5),
    ],
)
def test_the_size_of_an_effect(id: str, figures: Figures, effect: float) -> None:
    assert claim(id).effect.of(figures) == pytest.approx(effect)


def test_there_are_28_claims_and_each_has_a_name_of_its_own() -> None:
    ids = [c.id for exhibit in EXHIBITS.values() for c in exhibit.claims]
    assert len(ids) == len(set(ids)) == 28
    assert all(id.partition(".")[0] in EXHIBITS for id in ids)


def test_uniform_attention_of_nothing_is_no_mistake() -> None:
    """A resampled mean of few seeds is clipped at 0."""
    heads = ("previous-token head", "induction head")
    shares = {"layer 1": 0.5, "layer 2": 0.4, "uniform": 0.0}
    figures = {head: shares for head in heads} | {"the model": {"accuracy": 1.0}}
    for claim in EXHIBITS["figure3"].claims:
        assert 400 <= claim.effect.of(figures) <= 500
