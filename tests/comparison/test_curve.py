import numpy as np
import pytest

from mixit_titan.comparison.curve import Curve, crossings, read_curve, training_seconds


def curve(x: list[float], loss: list[float]) -> Curve:
    at = np.array(x, dtype=float)
    return Curve(dict.fromkeys(("steps", "tokens", "flops", "seconds"), at), np.array(loss))


def test_a_curve_is_straight_between_validations() -> None:
    found = curve([0, 10, 30], [6, 4, 2])
    assert found.loss_at("tokens", 20) == pytest.approx(3)
    assert found.loss_at("tokens", 31) is None
    assert found.budget_for("tokens", 3) == pytest.approx(20)
    assert found.budget_for("tokens", 1.9) is None


def test_a_loss_is_reached_when_it_is_reached_first() -> None:
    found = curve([0, 10, 20, 30, 40], [9, 6, 3, 5, 3])
    assert found.budget_for("tokens", 4) == pytest.approx(10 + 20 / 3)
    assert found.budget_for("tokens", 6) == 10


def test_nothing_is_known_between_initialization_and_the_first_validation() -> None:
    """A run of a ladder is validated at its end alone."""
    found = curve([0, 1000], [6, 2])
    assert found.loss_at("tokens", 900) is None and found.budget_for("tokens", 3) is None
    assert found.loss_at("tokens", 1005) == found.loss_at("tokens", 995) == 2
    assert found.loss_at("tokens", 1020) is None


def test_curves_that_cross_do_so_where_two_lines_meet() -> None:
    # 6 - x / 10 and 5 - x / 20 meet at 20, at a loss of 4.
    a, b = curve([0, 15, 40], [6, 4.5, 2]), curve([0, 30, 40], [5, 3.5, 3])
    # a, which falls faster, is the lower one from there on.
    assert crossings(a, b, "flops") == [(pytest.approx(20), pytest.approx(4), True)]
    assert crossings(b, a, "flops") == [(pytest.approx(20), pytest.approx(4), False)]
    assert crossings(a, a, "flops") == []


def test_what_happened_before_the_first_validation_is_not_known() -> None:
    assert crossings(curve([0, 10], [6, 4]), curve([0, 10], [7, 3]), "tokens") == []


def line(step: int, tokens: int, rate: float) -> dict[str, float]:
    return {"step": step, "loss": 1.0, "tokens": tokens, "tokens_per_s": rate}


def test_seconds_are_those_of_training() -> None:
    """The first step compiles, and the run was killed after step 20 and resumed: its waiting is in
    no line's tokens/s."""
    lines = [line(1, 10, 0.1), line(10, 100, 5), line(20, 200, 10), line(30, 300, 20)]
    assert np.cumsum(training_seconds(lines)).tolist() == pytest.approx([2, 20, 30, 35])


def test_what_each_restart_compiled_is_no_training() -> None:
    """A run of 10 tokens/s that was killed twice: the lines after it resumed, at 15 and at 20, are
    five times slower. Nothing follows the last one, which is as fast as what came before."""
    rates = {1: 0.1, 10: 10, 20: 2, 30: 10, 40: 10, 50: 2}
    lines = [line(step, 10 * step, rate) for step, rate in rates.items()]
    seconds = training_seconds(lines, starts=(0, 15, 40))
    assert np.cumsum(seconds).tolist() == pytest.approx([1, 10, 20, 30, 40, 50])


def test_a_run_of_one_line_is_as_fast_as_that_says() -> None:
    assert training_seconds([line(1, 10, 5)]) == [2]


def test_a_point_per_validation_with_what_was_spent_until_then() -> None:
    lines = [
        {"step": 0, "validation_loss": 6.0},
        *(line(1, 10, 0.1), line(10, 100, 5), line(20, 200, 10)),
        {"step": 15, "validation_loss": 4.0},
        {"step": 20, "validation_loss": None},
    ]
    found = read_curve(lines, "validation_loss", [(0, 7)])
    assert found.at["tokens"].tolist() == [0, 150]
    assert found.at["flops"].tolist() == [0, 1050]
    assert found.at["seconds"].tolist() == [0, 25]
    assert found.loss.tolist() == [6, 4]


def test_how_far_a_curve_falls_between_the_validations_around_a_budget() -> None:
    found = curve([0, 10, 30], [6, 4, 3])
    assert found.fall_around("tokens", 20) == pytest.approx(1 / 4)
    assert [found.fall_around("tokens", at) for at in (0, 10, 30, 31)] == [0, 0, 0, 0]
