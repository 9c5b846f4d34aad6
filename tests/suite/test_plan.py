"""What a suite plans: the same for every stack but the stack itself, and as its papers say."""

from pathlib import Path

import pytest

from mixit_titan.errors import ConfigError
from mixit_titan.suite.plan import SuiteArguments, fewest_layers, suite_cells
from mixit_titan.suite.suites import SUITES
from mixit_titan.tasks.choice import FIRST_SEED

OF_A_STACK = {"variant", "stack", "recipe", "std"}
"""What may differ: the mixing matrices have a recipe."""
STACKS = ("standard,mixit,lstm",)


@pytest.mark.parametrize("scale", ["cpu", "paper"])
@pytest.mark.parametrize("name", SUITES)
def test_stacks_differ_in_nothing_else(name: str, scale: str, tmp_path: Path) -> None:
    args = SuiteArguments(name=name, scale=scale, out=tmp_path, stacks=STACKS, grid=("lr=1e-3",))
    cells = suite_cells(args)
    assert len(cells) == 3 * len(SUITES[name].problems)
    for problem in SUITES[name].problems:
        plans = [
            [
                {key: value for key, value in run.described().items() if key not in OF_A_STACK}
                for run in cell.places
            ]
            for cell in cells
            if cell.problem == problem
        ]
        assert plans[0] == plans[1] == plans[2]


def test_reported_seeds_are_not_those_of_the_choice(tmp_path: Path) -> None:
    for cell in suite_cells(
        SuiteArguments(name="state", out=tmp_path, only=("parity",), grid=("lr=1e-3",))
    ):
        assert not cell.searched()  # one place: nothing to choose
        assert [job.arguments[0].settings.seed for job in cell.reported(())] == [0, 1, 2]
    for cell in suite_cells(SuiteArguments(name="state", only=("parity",), out=tmp_path)):
        (seed,) = {job.arguments[0].settings.seed for job in cell.searched()}
        assert seed == FIRST_SEED and cell.reported(()) == [] and len(cell.searched()) == 3


def test_a_variant_in_other_words_is_the_variants_run(tmp_path: Path) -> None:
    plan = {"name": "state", "only": ("parity",), "grid": ("lr=1e-3",), "layers": 2}
    (one,), (other,) = (
        suite_cells(SuiteArguments(**plan, out=tmp_path, stacks=(stacks,)))
        for stacks in ("mixit", "mixit mixit")
    )
    assert [run.hash for run in one.places] == [run.hash for run in other.places]


def test_the_papers_protocols(tmp_path: Path) -> None:
    """MAD: 3 rates and 2 weight decays, 200 epochs of 12,800 examples in batches of 128. Zoology's
    Figure 2: 4 rates, 64 epochs of 100,000 examples, 16 tokens for each pair."""
    plan = {"scale": "paper", "out": tmp_path, "stacks": ("standard",)}
    for cell in suite_cells(SuiteArguments(name="mad", only=("recall,memorization",), **plan)):
        found = {(run.settings.lr, run.settings.weight_decay) for run in cell.places}
        assert found == {(lr, decay) for lr in (1e-4, 5e-4, 1e-3) for decay in (0.0, 0.1)}
        settings = cell.places[0].settings
        examples = 256 if cell.problem == "memorization" else 12_800
        assert settings.steps * settings.batch == 200 * examples == 200 * settings.train
    cells = suite_cells(SuiteArguments(name="recall", only=("mqar_4,mqar_8,mqar_16",), **plan))
    for cell in cells:
        task, settings = cell.places[0].task, cell.places[0].settings
        assert task.length == 16 * task.pairs and task.vocab == 8192 and len(cell.places) == 4
        assert settings.steps * settings.batch == 64 * 100_000 == 64 * settings.train
    assert [cell.places[0].task.pairs for cell in cells] == [4, 8, 16]


@pytest.mark.parametrize(
    ("stacks", "layers"),
    [
        (["standard"], 2),
        (["standard", "lstm", "linear"], 2),
        (["mixit*3 standard", "mixit standard"], 4),
        (["mixit*2 standard", "mixit standard"], 6),
        (["mixit standard@4", "mixit standard@upper"], 5),
    ],
)
def test_as_many_layers_as_every_stack_fills(stacks: list[str], layers: int) -> None:
    assert fewest_layers(stacks) == layers


def test_stacks_that_no_depth_fits_are_one_sentence() -> None:
    with pytest.raises(ConfigError, match="do not fill"):
        fewest_layers(["mixit*13 standard", "mixit*10 standard"])


def test_the_share_of_attention_layers(tmp_path: Path) -> None:
    stacks = ("standard,mixit,mixit*3 standard,standard@0-2 mixit,uniform window,lstm,frozen_qk",)
    cells = suite_cells(SuiteArguments(name="state", out=tmp_path, stacks=stacks, only=("parity",)))
    assert {cell.places[0].settings.layers for cell in cells} == {4}
    assert [cell.attention for cell in cells] == [1.0, 0.0, 0.25, 0.75, 0.5, 0.0, 1.0]
