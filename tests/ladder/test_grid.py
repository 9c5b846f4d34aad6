import dataclasses

import pytest

from mixit_titan.errors import ConfigError
from mixit_titan.ladder.grid import plan_runs
from mixit_titan.ladder.scales import SCALES, Scale

CPU = SCALES["cpu"]
RUNS = plan_runs(CPU, vocab=320, seeds=1)


def test_all_stacks_of_a_rung_see_the_same_tokens() -> None:
    for depth in CPU.depths:
        rung = [run for run in RUNS if run.series == "rung" and run.depth == depth]
        assert {run.stack for run in rung} == {*CPU.stacks}
        assert len({run.tokens for run in rung}) == 1
        standard = next(run for run in rung if run.stack == "standard")
        half_a_step = standard.batch_tokens / 2
        expected = CPU.tokens_per_parameter * standard.params
        assert abs(standard.tokens - expected) <= half_a_step


@pytest.mark.parametrize("scale", SCALES.values(), ids=[*SCALES])
def test_isoflop_runs_spend_their_budget(scale: Scale) -> None:
    found = [run for run in plan_runs(scale, scale.vocab, seeds=1) if run.series == "isoflop"]
    for run in found:
        assert abs(run.flops - run.budget) <= run.batch_tokens / 2 * run.flops_per_token
    for budget in scale.budgets:
        for stack in scale.stacks:
            depths = [run.depth for run in found if (run.budget, run.stack) == (budget, stack)]
            assert len(depths) >= 3  # else a budget has no best size


def test_only_the_last_rung_is_forecast_and_it_comes_last() -> None:
    largest = [run for run in RUNS if run.largest]
    assert {(run.depth, run.series) for run in largest} == {(6, "rung")}
    assert RUNS[-len(largest) :] == largest
    assert max(run.flops for run in RUNS if not run.largest) < min(run.flops for run in largest)


def test_seeds_multiply_the_runs() -> None:
    again = plan_runs(CPU, vocab=320, seeds=3)
    assert len(again) == 3 * len(RUNS)
    assert len({run.name for run in again}) == len(again)


def test_a_run_of_a_few_steps_is_refused() -> None:
    scale = dataclasses.replace(CPU, tokens_per_parameter=0.1)
    with pytest.raises(ConfigError, match=r"depth 2 would train 3 steps .* at least 20"):
        plan_runs(scale, vocab=320, seeds=1)


def test_a_stack_that_does_not_fill_a_depth_is_refused() -> None:
    scale = dataclasses.replace(CPU, stacks=("mixit*3 standard",))
    with pytest.raises(ConfigError, match=r"4 layers, which do not fill model\.layers = 2"):
        plan_runs(scale, vocab=320, seeds=1)


def test_a_budget_that_fits_no_depth_is_refused() -> None:
    scale = dataclasses.replace(CPU, budgets=(1e9,))
    with pytest.raises(ConfigError, match=r"no depth fits the budget of 1e\+09 FLOPs"):
        plan_runs(scale, vocab=320, seeds=1)
