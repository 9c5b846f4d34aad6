"""Choosing settings: the same grid and budget for every variant, on seeds that are never
reported."""

import itertools
import json
from pathlib import Path

import pytest

from mixit_titan.cli import main
from mixit_titan.model.variants import VARIANTS
from mixit_titan.tasks.baselines import BASELINES
from mixit_titan.tasks.choice import FIRST_SEED, RULE, choices, describe_choice
from mixit_titan.tasks.options import preset_run
from mixit_titan.tasks.presets import PRESETS, preset_values
from mixit_titan.tasks.sweep import SweepArguments
from mixit_titan.tasks.task import TASKS

SMALL = "width=8 heads=2 layers=1 batch=4 steps=2 test=20 digits=3"


def call(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr("sys.argv", ["mixit-titan", *line.split()])
    main()


@pytest.mark.usefixtures("job_server")
def test_a_choice_has_all_that_was_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    line = "sweep addition --variants standard mixit --grid lr=1e-3,1e-2 --seeds 2 --choose"
    call(monkeypatch, f"{line} --set {SMALL} --out {tmp_path}")
    choice = json.loads((tmp_path / "choice.json").read_text())
    assert (choice["task"], choice["rule"], choice["held_out"]) == ("addition", RULE, "validation")
    assert choice["seeds"] == [FIRST_SEED, FIRST_SEED + 1]
    assert choice["grid"] == {"lr": [0.001, 0.01]}
    results = {}
    for file in tmp_path.glob("*/result.json"):
        found = json.loads(file.read_text())
        settings = found["settings"]
        assert settings["held_out"] == "validation" and settings["steps"] == 2
        results[found["variant"], settings["lr"], settings["seed"]] = found["accuracy"]
    assert len(results) == 8
    assert choice["variants"].keys() == {"standard", "mixit"}
    for variant, found in choice["variants"].items():
        means = {}
        for place in found["tried"]:
            lr, seeds = place["settings"]["lr"], place["seeds"]
            assert {s["seed"]: s["accuracy"] for s in seeds} == {
                seed: results[variant, lr, seed] for seed in choice["seeds"]
            }
            means[lr] = (sum(s["accuracy"] for s in seeds), -sum(s["loss"] for s in seeds))
        assert found["chosen"] == {"lr": max(means, key=means.get)}
        assert found["settings"]["steps"] == 2 and "lr" not in found["settings"]


def test_a_tie_is_decided_by_the_loss() -> None:
    described = {
        str(n): {"lr": n / 10, "width": 8, "seed": 0, "variant": "mixit"} for n in range(4)
    }
    figures = [(0.5, 0.1), (0.9, 2.0), (0.9, 1.0), (0.9, 1.0)]
    rows = [
        {"folder": str(n), "variant": "mixit", "seed": 0, "accuracy": a, "loss": b, "steps": 5}
        for n, (a, b) in enumerate(figures)
    ]
    (found,) = describe_choice(rows, described, ["lr"]).values()
    assert found["chosen"] == {"lr": 0.2}
    assert found["settings"] == {"width": 8}


def test_a_choice_does_not_rest_on_the_one_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = {"addition": {"variants": {"mixit": {"chosen": {"lr": 0.125, "heads": 1}}}}}
    monkeypatch.setattr("mixit_titan.tasks.choice.choices", lambda: made)
    words = ["--variant", "mixit"]
    assert preset_run("addition", "cpu", words).settings.lr == 0.125
    assert preset_run("addition", "cpu", words, chosen=False).settings.lr != 0.125
    assert preset_run("addition", "paper", words).settings.lr == PRESETS["paper"]["addition"]["lr"]
    assert preset_run("addition", "cpu", []).settings.lr == PRESETS["cpu"]["addition"]["lr"]


@pytest.mark.parametrize(
    ("line", "message"),
    {
        "--choose --set held_out=test": "'held_out' is not for --grid and --set",
        "--choose --grid heads=4,64 --variants mixit standard": "head width",
        "--seeds 10001": "--seeds is 10001",
    }.items(),
)
def test_a_mistake_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    tmp_path: Path,
    line: str,
    message: str,
) -> None:
    with pytest.raises(SystemExit) as exit_:
        call(monkeypatch, f"sweep addition {line} --out {tmp_path / 'out'}")
    error = capsys.readouterr().err
    assert exit_.value.code == 2 and message in error and error.count("\n") == 1, error


@pytest.mark.parametrize("task", choices())
def test_every_variant_was_tried_alike(task: str) -> None:
    """The same grid, the same seeds, the same budget; none of the seeds is one to report."""
    choice = choices()[task]
    grid = [dict(zip(choice["grid"], values, strict=True))
            for values in itertools.product(*choice["grid"].values())]  # fmt: skip
    assert choice["task"] == task and choice["held_out"] == "validation"
    assert choice["rule"] == RULE and len(choice["variants"]) > 1
    assert choice["seeds"] and min(choice["seeds"]) >= FIRST_SEED
    budgets = set()
    for variant, found in choice["variants"].items():
        now = preset_run(task, "cpu", ["--variant", variant], chosen=False).described()
        there = found["settings"] | choice["variants"][variant]["chosen"] | {"variant": variant}
        moved = {key for key in now if now[key] != there.get(key)} - {
            *choice["grid"],
            "seed",
            "csv",
        }
        assert not moved, f"the shared row of {task} has changed since: choose again"
        assert [place["settings"] for place in found["tried"]] == grid
        best = max(found["tried"], key=lambda place: (place["accuracy"], -place["loss"]))
        assert found["chosen"] == best["settings"]
        for place in found["tried"]:
            assert [seed["seed"] for seed in place["seeds"]] == choice["seeds"]
            both = found["settings"] | place["settings"]
            budgets.add((both["steps"] * both["batch"], both["held_out"]))
    assert len(budgets) == 1 and "variant" not in grid[0] and "seed" not in grid[0]


OF_THE_MIXER = {"recipe", "std", "noise"}
"""Settings of the mixing matrices, which no other variant has."""


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("task", TASKS)
def test_no_variant_has_a_setting_of_its_own(task: str, preset: str) -> None:
    """Beside what was chosen for each out of the same grid. Table 5 varies the heads of mixit on
    top of that, as the paper does."""
    shared = PRESETS[preset].get(task, {})
    grid = choices()[task]["grid"] if preset == "cpu" and task in choices() else {}
    budgets = set()
    for variant in (*VARIANTS, *BASELINES):
        values = preset_values(preset, task, variant)
        own = {key for key, value in values.items() if shared.get(key) != value} - {"variant"}
        if variant == "mixit":
            own -= OF_THE_MIXER
        assert own <= grid.keys(), (variant, own)
        settings = preset_run(task, preset, ["--variant", variant]).settings
        budgets.add((settings.steps, settings.batch, settings.train, settings.target_accuracy))
    assert len(budgets) == 1


def test_seeds_of_a_choice_are_never_reported() -> None:
    chosen = {seed for choice in choices().values() for seed in choice["seeds"]}
    sweep = {
        seed for n in (1, FIRST_SEED) for seed in SweepArguments(task="addition", seeds=n).all_seeds
    }
    assert not chosen & sweep and max(sweep) == FIRST_SEED - 1
