"""`mixit-titan suite` as a user types it: what it trains, chooses, reports and resumes."""

import json
import shlex
import statistics
from pathlib import Path
from typing import Any

import pytest

from mixit_titan.cli import main
from mixit_titan.tasks.choice import FIRST_SEED

SMALL = "width=8 heads=2 batch=4 steps=2 test=20 length=12"
LINE = f"suite state --only parity,modular_sum --stacks 'standard,mixit standard' --set {SMALL}"
GRID = "--grid lr=1e-4,1e-1"


def call(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr("sys.argv", ["mixit-titan", *shlex.split(line)])
    main()


def results(out: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(out.glob("*/result.json"))]


def test_a_suite_reports_the_seeds_of_what_was_best_on_validation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Trained by the commands that it lists: first those that choose, then those that are reported,
    and nothing is left for it. Every figure again, from the results of the single runs."""
    out = tmp_path / "a folder"
    line = f"{LINE} {GRID} --seeds 2 --first-seed 5 --out '{out}'"
    counts = []
    for _ in range(3):
        call(monkeypatch, f"{line} --list")
        commands = capsys.readouterr().out.splitlines()
        counts.append(len(commands))
        for command in commands:
            call(monkeypatch, command)
        capsys.readouterr()
    assert counts == [2 * 2 * 2, 2 * 2 * 2, 0]
    call(monkeypatch, line)
    printed, said = capsys.readouterr()
    assert "16 jobs, 16 of them done before" in said
    found = json.loads((out / "suite.json").read_text())
    runs = results(out)
    assert len(runs) == found["runs"] == 2 * 2 * (2 + 2)
    assert found["seconds"] == pytest.approx(sum(run["seconds"] for run in runs), abs=0.01)
    assert found["seeds"] == [5, 6] and found["choosing_seed"] == FIRST_SEED
    means = {}
    for cell in found["cells"]:
        own = [r for r in runs if (r["task"], r["variant"]) == (cell["task"], cell["stack"])]
        trials = [r for r in own if r["settings"]["seed"] == FIRST_SEED]
        assert {r["settings"]["held_out"] for r in trials} == {"validation"}
        assert sorted(r["settings"]["lr"] for r in trials) == [1e-4, 1e-1]
        best = max(trials, key=lambda r: (r["accuracy"], -r["loss"]))["settings"]["lr"]
        assert cell["chosen"] == {"lr": best} and len(cell["tried"]) == 2
        tested = {r["settings"]["seed"]: r for r in own if "held_out" not in r["settings"]}
        assert tested.keys() == {5, 6} and {r["settings"]["lr"] for r in tested.values()} == {best}
        accuracies = [tested[seed]["accuracy"] for seed in (5, 6)]
        means[cell["task"], cell["stack"]] = accuracies
        assert cell["accuracy"]["mean"] == pytest.approx(statistics.fmean(accuracies))
        assert cell["accuracy"]["std"] == pytest.approx(statistics.stdev(accuracies))
        shown = f"{100 * statistics.fmean(accuracies):.2f} ±"
        assert shown in printed and shown in (out / "suite.md").read_text()
    assert [each["stack"] for each in found["stacks"]] == ["standard", "mixit standard"]
    assert [each["attention"] for each in found["stacks"]] == [1.0, 0.5]
    for each in found["stacks"]:
        tasks = [means["parity", each["stack"]], means["modular_sum", each["stack"]]]
        assert each["score"]["mean"] == pytest.approx(
            statistics.fmean(map(statistics.fmean, tasks))
        )
        by_seed = [statistics.fmean(pair) for pair in zip(*tasks, strict=True)]
        assert each["score"]["std"] == pytest.approx(statistics.stdev(by_seed))
    assert (out / "suite.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("job_server")
def test_a_rate_that_diverges_is_not_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    line = f"suite state --only parity --stacks standard --set {SMALL} --seeds 1"
    call(monkeypatch, f"{line} --grid lr=1e30,1e-3 --out {tmp_path / 'one'}")
    (cell,) = json.loads((tmp_path / "one" / "suite.json").read_text())["cells"]
    assert cell["chosen"] == {"lr": 0.001} and len(cell["tried"]) == len(cell["seeds"]) == 1
    with pytest.raises(SystemExit) as exit_:
        call(monkeypatch, f"{line} --grid lr=1e30 --out {tmp_path / 'none'}")
    assert exit_.value.code == 1
    assert "1 of 1 cells are incomplete: see " in capsys.readouterr().err
    found = json.loads((tmp_path / "none" / "suite.json").read_text())
    assert found["cells"][0]["accuracy"] is None and found["stacks"][0]["score"] is None


@pytest.mark.parametrize(
    ("line", "message"),
    {
        "suite mda": "unknown suite 'mda': did you mean 'mad'?",
        "suite mad --only mad_recal": "unknown task of mad 'mad_recal'",
        "suite mad --stacks standard,mixti": "did you mean 'mixit'?",
        "suite mad --stacks ,": "--stacks is empty",
        "suite mad --stacks 'mixit,mixing'": "--stacks has 'mixit' twice",
        "suite mad --stacks 'mixit*3 standard' --layers 2": "do not fill --layers = 2",
        "suite mad --stacks standard --stacks mixit": "--stacks is given twice",
        "suite mad --seeds 10001": "--seeds is 10001",
        "suite mad --first-seed 9999": "from where on seeds are reserved",
        "suite mad --grid lr": "'lr' is not part of a grid",
        "suite mad --set layers=3": "'layers' is not for --grid and --set: use --layers",
        "suite mad --set lr=1": "'lr' is in --grid and in --set",
        "suite mad --set width=8,16": "--set width=8,16: it takes one value, --grid several",
        "suite mad --set pairs=3": "unknown option of mad_recall '--pairs'",
        "suite mad --set heads=3": "--set heads = 3 does not divide --set width = ",
        "suite mad --set freeze=qk --stacks mixit": "--set freeze names 'qk', but the mixing mixer",
        "suite mad --set freeze=qk --stacks 'mixit standard'": "--set freeze names 'qk', and",
        "suite recall --set pairs=3": "'pairs' distinguishes the tasks of the suite",
        "suite recall --set variant=mixit": "use --stacks",
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
        call(monkeypatch, f"{line} --out {tmp_path / 'out'}")
    error = capsys.readouterr().err
    assert exit_.value.code == 2 and message in error and error.count("\n") == 1, error
    assert not (tmp_path / "out").exists()
