"""Runs on two ranks that are asked to stop, or cannot continue."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from mixit_titan.drill.small_disk import small_disk
from mixit_titan.runtime.checkpoint_files import newest_complete
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.runtime.run_state import read_state
from tests.forkserver import Forkserver

from . import stopping_worker
from .conftest import STEPS

STOPPED = {"in_a_step": 9, "in_a_validation": 14, "while_loading": 0, "asynchronous": 10}


DISKS = ("small_disk", "small_disk_asynchronous")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, forkserver: Forkserver) -> Iterator[Path]:
    """The runs of stopping_worker.py. Those on a disk that is too small for their checkpoints need
    one, which only root can mount."""
    root = tmp_path_factory.mktemp("stopping")
    with contextlib.ExitStack() as stack:
        for name in DISKS:
            if not stack.enter_context(small_disk(root / name / "checkpoint", "4m")):
                (root / name).rmdir()
        forkserver.run_ranks(2, stopping_worker.RUNS, stopping_worker.main, root)
        yield root


@pytest.mark.parametrize("name", STOPPED)
def test_all_ranks_stop_at_one_step_and_the_run_goes_on_as_if_it_had_not(
    root: Path, name: str
) -> None:
    saved = STOPPED[name]
    word = (root / name / "stopped").read_text().split()
    assert word[:2] == ["stopped", str(saved)]
    if saved:
        assert (root / name / "checkpoint" / f"step-{saved}" / ".metadata").is_file()
    assert_as_unbroken(root, name)


def assert_as_unbroken(root: Path, name: str) -> None:
    """The same losses and validations at the same steps, and the same random numbers."""
    assert read_state(root / name).word == "finished"
    ours, expected = (
        [(line["step"], line.get("loss", line.get("validation_loss"))) for line in lines]
        for lines in (read_metrics(root / n / "metrics.jsonl") for n in (name, "unbroken"))
    )
    assert [step for step, _ in ours] == [step for step, _ in expected]
    assert max(abs(a - b) for (_, a), (_, b) in zip(ours, expected, strict=True)) < 1e-4
    for rank in range(2):
        drawn = [(root / n / f"rng_{rank}").read_text() for n in (name, "unbroken")]
        assert drawn[0] == drawn[1]


def test_processes_that_a_rank_has_started_survive_the_signal(root: Path) -> None:
    assert [(root / f"child_{rank}").read_text() for rank in range(2)] == ["None", "None"]


def test_a_run_goes_on_from_the_checkpoint_before_a_broken_one(root: Path) -> None:
    assert_as_unbroken(root, "broken")
    names = {path.name for path in (root / "broken" / "checkpoint").iterdir()}
    assert names == {".broken-20", "step-5", "step-10", "step-15", "step-20"}
    log = (root / "broken" / "logs" / "rank_0.log").read_text()
    assert "Loading the checkpoint from" in log and "step-15" in log
    assert newest_complete(root / "broken" / "checkpoint") == STEPS


def test_a_run_resumes_from_the_checkpoint_before_a_damaged_one(root: Path) -> None:
    assert_as_unbroken(root, "damaged")
    names = {path.name for path in (root / "damaged" / "checkpoint").iterdir()}
    assert names == {".broken-20", "step-5", "step-10", "step-15", "step-20"}
    log = (root / "damaged" / "logs" / "rank_0.log").read_text()
    checkpoint = root / "damaged" / "checkpoint"
    assert f"the checkpoint {checkpoint}/step-20 is damaged: bytes" in log
    assert f"__1_0.distcp are not as they were saved. It is now {checkpoint}/.broken-20" in log
    assert f"{checkpoint}/step-15 has no checksum of its metadata" in log


def test_a_loss_that_is_not_finite_ends_the_run_and_no_broken_weights_are_saved(
    root: Path,
) -> None:
    run = root / "not_finite"
    assert read_state(run).word == "failed"
    for rank in range(2):
        assert "not finite" in (run / f"failed_{rank}").read_text()
    assert newest_complete(run / "checkpoint") in (None, *range(1, read_state(run).step))


@pytest.mark.parametrize("name", DISKS)
def test_a_full_disk_ends_the_run_and_the_checkpoints_stay(root: Path, name: str) -> None:
    run = root / name
    if not run.exists():
        pytest.skip("no small disk can be mounted here")
    state = read_state(run)
    assert state.word == "failed" and 1 < state.step < STEPS
    assert "is full at step" in state.said and "Make room" in state.said
    for rank in range(2):
        assert (run / f"failed_{rank}").read_text() == state.said
    assert not list((run / "checkpoint").glob(".unfinished-*"))
    assert state.step - 3 < newest_complete(run / "checkpoint") < state.step
