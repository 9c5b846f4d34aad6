"""Runs of a ladder as they are trained."""

import json
from pathlib import Path

import pytest

from mixit_titan.comparison.runs import read_run
from mixit_titan.config.estimate import estimate
from mixit_titan.config.plan import plan_run
from mixit_titan.ladder.command import LadderArguments, run_ladder
from mixit_titan.ladder.grid import plan_runs
from mixit_titan.ladder.jobs import ladder_job
from mixit_titan.ladder.scales import SCALES
from mixit_titan.model.hardware import find_gpu
from mixit_titan.model.variants import find_stack

CPU = SCALES["cpu"]


def test_a_folder_is_named_by_all_that_is_trained(tmp_path: Path) -> None:
    runs = plan_runs(CPU, vocab=320, seeds=2)
    folders = {ladder_job(run, CPU, 320, tmp_path).folder for run in runs}
    assert len(folders) == len(runs)
    again = {ladder_job(run, CPU, 320, tmp_path / "other").folder.name for run in runs}
    assert {folder.name for folder in folders} == again


@pytest.mark.slow
def test_what_is_trained_is_what_the_grid_says(tmp_path: Path, job_server: None) -> None:
    """By the folders of the runs: FLOPs, tokens and parameters as `compare` reads them."""
    options = {"depths": (1,), "budgets": (), "tokens_per_parameter": 8.0}
    stacks = ("standard", "mixit standard@last")
    run_ladder(LadderArguments(out=tmp_path, stacks=stacks, **options))
    found = json.loads((tmp_path / "ladder.json").read_text())
    assert [row["stack"] for row in found["runs"]] == [*stacks] and not found["left_out"]
    for row in found["runs"]:
        run = read_run(tmp_path / "runs" / row["folder"])
        curve = run.curve("validation_loss")
        assert run.flops_per_token == row["flops_per_token"]
        assert curve.end("tokens") == row["tokens"]
        assert curve.end("flops") == row["flops"]
        assert float(curve.loss[-1]) == row["loss"]
        assert run.settings["optimizer.lr"] == pytest.approx(CPU.dial.rate(1), rel=1e-5)


@pytest.mark.parametrize("stack", SCALES["gpu"].stacks)
def test_the_largest_run_of_the_gpu_scale_fits_one_h100(tmp_path: Path, stack: str) -> None:
    """By the model of memory, from the words that `--list` prints."""
    scale = SCALES["gpu"]
    run = next(
        run for run in plan_runs(scale, scale.vocab, 1) if run.largest and run.stack == stack
    )
    config, overrides, _ = ladder_job(run, scale, scale.vocab, tmp_path).arguments
    plan = plan_run(config, overrides, world_size=1, on_gpus=True, gpu=find_gpu("H100"))
    assert plan.model.stack == find_stack(run.depth, stack=stack)
    assert plan.sections.training.steps == run.steps
    found = estimate(plan, ranks=1)
    assert found.fits, found.advice()
