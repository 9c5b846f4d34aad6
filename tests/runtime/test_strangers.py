"""No command runs code that came with a checkpoint: it ends in one sentence."""

import contextlib
import itertools
import pickle
import shutil
from pathlib import Path

import pytest
import torch

from mixit_titan.cli import main
from mixit_titan.config.job import training_job
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.drill.comparison import compare
from mixit_titan.drill.run import DrillFailed
from mixit_titan.errors import ConfigError
from mixit_titan.jobs.runner import Runner
from mixit_titan.tasks.job import task_job
from tests.evaluation.local_tasks import write_tasks
from tests.forkserver import Forkserver
from tests.tasks.conftest import make_run

from . import strangers_worker
from .conftest import SMALL, STEPS, Runs
from .strangers import MODEL_ONLY, POISONS, Attack, saved

WAYS = {
    "resume": [*POISONS],
    "initial load": ["weight", "step", "moment", "moment's file", "metadata", "identity"],
    "initial load of the weights": [*MODEL_ONLY, "metadata"],
}
CASES = [(way, poison) for way, poisons in WAYS.items() for poison in poisons]


@pytest.fixture(scope="module")
def trained(runs: Runs, tmp_path_factory: pytest.TempPathFactory, forkserver: Forkserver) -> Path:
    """WAY/POISON/run/said, and WAY/POISON/made where code was run."""
    root = tmp_path_factory.mktemp("strangers")
    jobs = []
    for way, poison in CASES:
        place = root / way / poison
        copied = place / ("run" if way == "resume" else "strange")
        shutil.copytree(runs.folder("standard"), copied)
        checkpoint = copied / "checkpoint" / f"step-{STEPS}"
        POISONS[poison](checkpoint, Attack(place / "made"))
        words = [*SMALL, "--data.path", str(runs.data), "--training.steps", str(STEPS + 2)]
        if way != "resume":
            words += ["--checkpoint.initial_load_path", str(checkpoint)]
        if way == "initial load":
            words += ["--checkpoint.initial_load_model_only", "false"]
        jobs.append((str(shipped_configs()["debug_standard"]), words, place / "run"))
    forkserver.run_ranks(1, len(jobs), strangers_worker.main, jobs)
    return root


@pytest.mark.parametrize(("way", "poison"), CASES)
def test_train_runs_no_code(trained: Path, way: str, poison: str) -> None:
    place = trained / way / poison
    said = (place / "run" / "said").read_text()
    assert not (place / "made").exists(), said
    assert str(place) in said and len(said.splitlines()) == 1 and len(said) < 500, said
    assert "checkpoint" in said.split()[:2], said  # and no name of an exception


READERS = ("export", "analyze", "timeline", "eval on a text", "eval on tasks", "compare", "status")


@pytest.mark.parametrize(
    ("command", "poison"),
    [
        *(("generate", poison) for poison in (*MODEL_ONLY, "identity", "identity's file")),
        *(("generate", poison) for poison in ("metadata", "part of the metadata")),
        *itertools.product(READERS, ("weight", "weight's file", "metadata")),
    ],
)
def test_what_reads_a_model_runs_no_code(
    runs: Runs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    command: str,
    poison: str,
) -> None:
    run = shutil.copytree(runs.folder("mixit"), tmp_path / "run")
    POISONS[poison](run / "checkpoint" / f"step-{STEPS}", Attack(tmp_path / "made"))
    words = {
        "generate": ["generate", str(run), "--prompt", "def", "--tokens", "2"],
        "export": ["export", str(run), "--out", str(tmp_path / "exported")],
        "analyze": ["analyze", "covariance", str(run), "--out", str(tmp_path / "analysis")],
        "timeline": ["analyze", "timeline", str(run), "--out", str(tmp_path / "analysis")],
        "eval on a text": ["eval", str(run), "--text", __file__],
        "eval on tasks": ["eval", str(run), "--tasks", str(write_tasks(tmp_path / "tasks"))],
        "compare": ["compare", str(run), str(runs.folder("standard"))],
        "status": ["status", str(run)],
    }
    monkeypatch.setattr("sys.argv", ["mixit-titan", *words[command]])
    if command == "status":
        main()
    else:
        with pytest.raises(SystemExit) as exit_:
            main()
        assert exit_.value.code == 2
        lines = capsys.readouterr().err.splitlines()
        (said,) = [line for line in lines if line.startswith("mixit-titan: ")]
        assert str(run) in said
    assert not (tmp_path / "made").exists()
    assert not (tmp_path / "exported").exists()


def test_a_task_runs_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    attack = Attack(tmp_path / "made")
    for content in (saved(attack), saved({"described": attack}), saved({"model": 1})):
        (out / "checkpoint.pt").write_bytes(content)
        words = ["task", "addition", "--steps", "2", "--layers", "1", "--out", str(out)]
        monkeypatch.setattr("sys.argv", ["mixit-titan", *words])
        with pytest.raises(SystemExit) as exit_:
            main()
        assert exit_.value.code == 2
        assert f"{out}/checkpoint.pt" in capsys.readouterr().err
        assert not (tmp_path / "made").exists()
    (out / "checkpoint.pt").write_bytes(pickle.dumps(attack))
    main()
    assert (out / "checkpoint.pt.broken").exists() and not (tmp_path / "made").exists()


def test_the_weights_of_a_task_are_no_pickle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    words = ["task", "addition", "--steps", "1", "--layers", "1", "--out", str(tmp_path / "run")]
    monkeypatch.setattr("sys.argv", ["mixit-titan", *words])
    main()
    (tmp_path / "run" / "model.safetensors").write_bytes(saved(Attack(tmp_path / "made")))
    monkeypatch.setattr("sys.argv", ["mixit-titan", "analyze", "covariance", str(tmp_path / "run")])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2 and "model.safetensors cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("poison", ("weight", "weight's file", "metadata"))
def test_the_harness_of_others_runs_no_code(runs: Runs, tmp_path: Path, poison: str) -> None:
    """`lm_eval --model mixit_titan --model_args run=DIR`."""
    pytest.importorskip("lm_eval", reason="lm-eval (the extra `eval`) is not installed")
    from mixit_titan.evaluation.harness import MixitTitan

    run = shutil.copytree(runs.folder("mixit"), tmp_path / "run")
    POISONS[poison](run / "checkpoint" / f"step-{STEPS}", Attack(tmp_path / "made"))
    with pytest.raises(ConfigError, match=str(run)):
        MixitTitan.create_from_arg_string(f"run={run}")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("poison", POISONS)
def test_the_drill_runs_no_code(runs: Runs, tmp_path: Path, poison: str) -> None:
    """It compares what is saved in its folder."""
    good, run = runs.folder("standard"), shutil.copytree(runs.folder("standard"), tmp_path / "run")
    POISONS[poison](run / "checkpoint" / f"step-{STEPS}", Attack(tmp_path / "made"))
    with contextlib.suppress(ConfigError, DrillFailed):  # what is no tensor is not compared
        compare(run, good, steps=STEPS)
    assert not (tmp_path / "made").exists()


def test_jobs_run_no_code(runs: Runs, tmp_path: Path, job_server: None) -> None:
    """Those of demo, ladder and reproduce are trainings, those of sweep and suite are tasks."""
    train, task = tmp_path / "train", tmp_path / "task"
    attack = Attack(tmp_path / "made")
    shutil.copytree(runs.folder("standard"), train)
    POISONS["step"](train / "checkpoint" / f"step-{STEPS}", attack)
    task.mkdir()
    (task / "checkpoint.pt").write_bytes(saved({"described": attack}))
    words = [*SMALL, "--data.path", str(runs.data), "--training.steps", str(STEPS + 2)]
    run = make_run("addition", "--steps 2 --layers 1")
    runner = Runner(
        [
            training_job("debug_standard", words, train, name="train", steps=STEPS + 2, nproc=1),
            task_job(run, task, name="task"),
        ]
    )
    runner.run()
    assert runner.failed.keys() == {train, task}
    for job in runner.jobs:
        said = job.log.read_text().splitlines()[-1]
        assert said.startswith("mixit-titan: ") and "checkpoint" in said, said
    assert not (tmp_path / "made").exists()


def test_the_attack_would_work(tmp_path: Path) -> None:
    torch.load(_file(tmp_path, saved(Attack(tmp_path / "made"))), weights_only=False)
    assert (tmp_path / "made").exists()


def _file(folder: Path, content: bytes) -> Path:
    path = folder / "file"
    path.write_bytes(content)
    return path
