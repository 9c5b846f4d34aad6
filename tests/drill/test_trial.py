"""A fault passes where the run becomes the unbroken one, and fails where it does not."""

import itertools
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mixit_titan.drill.comparison import compare
from mixit_titan.drill.faults import Fault
from mixit_titan.drill.injection import hold_save
from mixit_titan.drill.run import DrillFailed, Run, Setup
from mixit_titan.drill.trial import try_fault
from tests.runtime.conftest import STEPS, Runs

SETUP = Setup(
    config=Path("toy.toml"),
    overrides=[],
    steps=STEPS,
    ranks=1,
    fewer=0,
    why_not_fewer="",
    watched=True,
    long_save=1.0,
)


class Pretended(Run):
    """A run that has come to what is in a folder."""

    def __init__(self, home: Path, source: Path) -> None:
        super().__init__(SETUP, home)
        self.source, self.closed = source, False

    def start(self, overrides: object = (), *, fewer: bool = False) -> None:
        shutil.copytree(self.source, self.folder, dirs_exist_ok=True)
        (self.folder / "state").touch()

    @property
    def step(self) -> int:
        return STEPS - 1  # when the fault reaches it

    def wait_for_step(self, step: int, *, saved: int = 0) -> None:
        pass

    def is_over(self) -> bool:
        return True

    def wait_for_end(self) -> None:
        pass

    def said(self) -> str:
        return "nothing"

    def close(self) -> None:
        self.closed = True

    def _refuse(self, *arguments: object) -> None:
        raise AssertionError("a run that is only pretended cannot be disturbed")

    ask_to_stop = signal_rank = kill_launcher = hold_save = _refuse


def change_a_loss(folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines[7]["loss"] += 1e-6
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("change", [None, change_a_loss])
def test_a_run_that_differs_in_its_last_bits_fails(
    runs: Runs, tmp_path: Path, change: object
) -> None:
    unbroken = runs.folder("mixit")
    source = shutil.copytree(unbroken, tmp_path / "source")
    if change is not None:
        change(source)
    run = Pretended(tmp_path / "home", source)
    fault = Fault(title="nothing", happen=lambda run: None)
    trial = try_fault("kill_rank", fault, lambda: run, unbroken, exact=True)
    assert run.closed
    if change is None:
        assert (trial.outcome, trial.losses, trial.weights) == ("passed", 0.0, 0.0)
    else:
        assert trial.outcome == "failed" and "losses by 1e-06" in trial.why


def test_other_weights_and_missing_steps_are_seen(runs: Runs, tmp_path: Path) -> None:
    run = shutil.copytree(runs.folder("mixit"), tmp_path / "run")
    other = shutil.copytree(runs.folder("mixit"), tmp_path / "other")
    shutil.rmtree(run / "checkpoint")
    shutil.copytree(runs.folder("random") / "checkpoint", run / "checkpoint")
    with pytest.raises(DrillFailed, match="uninterrupted run's tensors"):
        compare(run, other, steps=STEPS)
    lines = (other / "metrics.jsonl").read_text().splitlines()
    (other / "metrics.jsonl").write_text("\n".join(lines[:5] + lines[6:]))
    with pytest.raises(DrillFailed, match="each of the steps 1 to 20 once"):
        compare(other, runs.folder("mixit"), steps=STEPS)


SAVER = """
import sys, time
from pathlib import Path
folder = Path(sys.argv[1])
for step in range(10 ** 6):
    part = folder / f".unfinished-{step}"
    part.mkdir()
    time.sleep(0.1)
    (part / ".metadata").touch()
    part.rename(folder / f"step-{step}")
    time.sleep(0.1)
"""


def test_a_save_is_held(tmp_path: Path) -> None:
    def wait_for(count: int) -> None:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("step-*"))) < count:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    with subprocess.Popen([sys.executable, "-c", SAVER, str(tmp_path)]) as saver:
        try:
            wait_for(1)
            hold_save(saver.pid, tmp_path, 1.0)
            wait_for(len(list(tmp_path.glob("step-*"))) + 1)  # it resumes
        finally:
            saver.kill()
    times = sorted(file.stat().st_mtime for file in tmp_path.glob("step-*/.metadata"))
    assert max(later - sooner for sooner, later in itertools.pairwise(times)) > 1.0
