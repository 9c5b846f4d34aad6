import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from mixit_titan.config.toml import read_run
from mixit_titan.errors import ConfigError, RunFailed
from mixit_titan.jobs.runner import Runner
from mixit_titan.ladder.command import LadderArguments, run_ladder
from mixit_titan.ladder.grid import plan_runs
from mixit_titan.ladder.scales import SCALES

Ladder = Callable[..., Path]
ONE = {"stacks": ("standard",)}


def started(out: Path) -> list[str]:
    return (out / "runs" / "started").read_text().split()


def test_an_interrupted_ladder_resumes(ladder: Ladder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after five runs: the rest are made by the next command, and none twice."""
    end, ended = Runner._end, []

    def interrupt(runner: Runner, job: object) -> None:
        end(runner, job)
        ended.append(job)
        if len(ended) == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "_end", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ladder(jobs=1, **ONE)
    out = ladder(**ONE)
    found = json.loads((out / "ladder.json").read_text())
    assert len(found["runs"]) == found["runs_planned"]
    made = [row["folder"] for row in found["runs"]]
    assert sorted(started(out)) == sorted(made)
    unbroken = json.loads((ladder(out=out.parent / "other", **ONE) / "ladder.json").read_text())
    assert unbroken["fits"] == found["fits"]


def test_a_run_that_fails_is_named_and_the_rest_goes_on(ladder: Ladder, tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"1 of \d+ jobs failed"):
        ladder(broken="depth 3 seed", **ONE)
    found = json.loads((tmp_path / "out" / "ladder.json").read_text())
    (left,) = found["left_out"]
    assert left["run"] == "standard depth 3 seed 0" and "is broken" in left["why"]
    assert found["fits"]["standard"]["surface"]["alpha"]["value"] == pytest.approx(0.4, rel=0.02)


def test_nan_is_named_and_the_rest_goes_on(
    ladder: Ladder, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ladder(**ONE)
    victim = json.loads((out / "ladder.json").read_text())["runs"][3]
    metrics = out / "runs" / victim["folder"] / "metrics.jsonl"
    step = victim["steps"]
    lines = [{"step": step, "loss": None}, {"step": step, "validation_loss": None}]
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    capsys.readouterr()
    ladder(**ONE)
    assert started(out).count(victim["folder"]) == 1  # it would end so again
    found = json.loads((out / "ladder.json").read_text())
    (left,) = found["left_out"]
    assert left["why"] == f"its loss is not finite from step {step:,} on"
    assert len(found["runs"]) == found["runs_planned"] - 1
    assert "not finite" in capsys.readouterr().out
    assert found["fits"]["standard"]["surface"]["alpha"]["value"] == pytest.approx(0.4, rel=0.02)


def test_too_few_runs_for_a_fit_are_reported_with_how_many_it_takes(ladder: Ladder) -> None:
    out = ladder(depths=(2, 3), budgets=(), **ONE)
    found = json.loads((out / "ladder.json").read_text())
    assert found["fits"]["standard"]["surface"] is None
    surface, curve = found["fits"]["standard"]["missing"]
    assert surface == "fitting L(N, D) needs at least 7 runs, and there are 2"
    assert curve.startswith("fitting L(C) needs at least 5 runs, and there are 2")
    assert surface in (out / "ladder.md").read_text()


def test_a_report_starts_nothing(ladder: Ladder) -> None:
    out = ladder(report=True, **ONE)
    assert not (out / "runs").exists()
    found = json.loads((out / "ladder.json").read_text())
    assert {row["why"] for row in found["left_out"]} == {"it has not been started"}


def test_a_forecast_is_not_made_from_a_part_of_the_runs(ladder: Ladder, tmp_path: Path) -> None:
    """It could not be made again."""
    with pytest.raises(ConfigError, match="needs all runs but the largest"):
        ladder(report=True, forecast=True, **ONE)
    with pytest.raises(RunFailed, match=r"1 of \d+ jobs failed"):
        ladder(broken="depth 3 seed", forecast=True, **ONE)
    assert not (tmp_path / "out" / "forecast.json").exists()
    assert (ladder(forecast=True, **ONE) / "forecast.json").exists()


def test_the_list_is_a_command_for_each_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines set what the grid says, in a file that `train` reads."""
    options = {"scale": "gpu", "out": tmp_path, "list": True}
    run_ladder(LadderArguments(forecast=True, **options))
    below = capsys.readouterr().out.splitlines()
    run_ladder(LadderArguments(**options))
    lines = capsys.readouterr().out.splitlines()
    planned = plan_runs(SCALES["gpu"], vocab=128256, seeds=1)
    assert len(lines) == len(planned)
    assert len(lines) - len(below) == sum(run.largest for run in planned)
    command, config, *words = shlex.split(lines[-1])
    assert command == "train"
    table = read_run(config, [word for word in words if word not in ("--nproc", "1")])
    last = planned[-1]
    training, model = table["training"], table["model"]
    assert int(training["steps"]) * int(training["global_batch_size"]) * 2048 == last.tokens
    assert (int(model["layers"]), int(model["width"]), model["stack"]) == (20, 1280, last.stack)
    assert int(training["global_batch_size"]) % int(training["local_batch_size"]) == 0
    assert table["dump_folder"].startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stacks": ("standrad",)}, "did you mean 'standard'"),
        ({"depths": (2, 2)}, "--depths has a value twice"),
        ({"text": "nowhere"}, "--text 'nowhere' does not exist"),
        ({"list": True, "report": True}, "leave one of them out"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, options: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run_ladder(LadderArguments(out=tmp_path, **options))


def test_the_list_of_a_finished_ladder_says_so(
    ladder: Ladder, capsys: pytest.CaptureFixture[str]
) -> None:
    ladder(**ONE)
    capsys.readouterr()
    ladder(list=True, **ONE)
    said = capsys.readouterr()
    assert said.out == "" and "All of these runs are finished" in said.err
