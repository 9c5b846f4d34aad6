"""What `submit` refuses: one sentence, nothing in the queue, no folder left behind."""

from pathlib import Path

import pytest

from mixit_titan.cli import main
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.slurm.job_script import array_script

from .cluster import Cluster
from .conftest import MIXIT, call

WRONG = {
    "--partition smal": "unknown partition 'smal': did you mean 'small'?",
    "--nodes 4": "--nodes is 4: the partition 'all' allows at most 3",
    "--nodes 2 --partition small --time 30": "--nodes is 2: the partition 'small' allows at most 1",
    "--partition small --time 3:00:00": "--time is 3:00:00: the partition 'small' allows at most",
    "--constraint nope": "Slurm refuses the job: Invalid feature specification",
    "--nodes 3": "global_batch_size = 8 cannot be divided among 3 data-parallel ranks",
    "--nodes 2 --gpus-per-node 8": "global_batch_size = 8 cannot be divided among 16",
    "--nodes 2 --parallelism.data_parallel_shard_degree 3": "does not fit 2 rank(s)",
    "--nodes 2 --min-nodes 3": "--min-nodes is 3: it must be 1 to --nodes 2",
    "--nodes 0": "--nodes is 0: it must be in 1..65536",
    "--time tomorrow": "--time is 'tomorrow': write HH:MM:SS",
    "--time 5": "--time 5 is too short: it must be more than 0:06:00",
    "--after nope": "Slurm refuses the job: Job dependency problem",
    "--array-variants mixit,mixti": "did you mean 'mixit'",
    "--array-variants uniform,unifrom": "'unifrom' in the stack 'unifrom': did you mean 'uniform'",
    "--array-variants mixing-freeze-qk": "the mixing mixer has no queries and keys",
    "--array-variants mixit,mixit": "--array-variants is 'mixit,mixit': name each variant once",
    "--training.stepz 3": "did you mean 'training.steps'",
    "--checkpoint.load_step 5": "resumes from its newest checkpoint: keep the defaults",
    "--device gpu": 'is for GPUs (device = "gpu") and there is none here',
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.items())
def test_a_mistake_ends_with_one_sentence_and_submits_nothing(
    cluster: Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    arguments: str,
    message: str,
) -> None:
    before = cluster.run("squeue", "--noheader", "--states=all", "--format=%i").split()
    words = ["--gpus-per-node", "0", "--dump_folder", str(tmp_path / "run"), *arguments.split()]
    with pytest.raises(SystemExit) as exit_:
        call(cluster, "submit", MIXIT, *words)
    assert exit_.value.code == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    waiting = cluster.run("squeue", "--noheader", "--format=%i").split()
    assert set(waiting) <= set(before)


def test_no_sbatch_on_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setattr(
        "sys.argv", ["mixit-titan", "submit", MIXIT, "--dump_folder", str(tmp_path / "run")]
    )
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    error = capsys.readouterr().err
    assert "there is no sbatch on this machine" in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("variants", [[], ["--array-variants", "standard,mixit"]])
def test_a_run_is_submitted_once(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture, variants: list[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "job.sbatch").write_text("#!/bin/sh\n")
    with pytest.raises(SystemExit):
        call(cluster, "submit", MIXIT, "--dump_folder", str(tmp_path / "run"), *variants)
    assert f"`sbatch {tmp_path}/run/job.sbatch` resumes it" in capsys.readouterr().err


def test_a_dry_run_shows_the_script_and_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    folder, large = tmp_path / "run", ["--nodes", "3", "--gpus-per-node", "8", "--qos", "a b"]
    fit = ["--training.global_batch_size", "24", "--dump_folder", str(folder), "--dry-run"]
    cluster.wait_until_idle()
    printed = call(cluster, "submit", MIXIT, *large, *fit)
    lines = printed.splitlines()
    for line in ("--nodes=3", "--gpus-per-node=8", "--qos='a b'", "--signal=B:USR1@180"):
        assert f"#SBATCH {line}" in lines
    assert "Nothing was submitted. Slurm says: Job " in lines[-1] and "nodes node[1-3]" in lines[-1]
    assert not folder.exists()


def test_site_settings_are_for_flags_that_are_not_given(cluster: Cluster, tmp_path: Path) -> None:
    site = tmp_path / "site.env"
    site.write_text("SBATCH_PARTITION=small; export SBATCH_ACCOUNT='my project'\n")
    cluster.environment["SITE_ENV"] = str(site)
    try:
        words = ["--gpus-per-node", "0", "--dump_folder", str(tmp_path / "run"), "--dry-run"]
        words += ["--time", "30"]
        both = call(cluster, "submit", MIXIT, *words)
        given = call(cluster, "submit", MIXIT, *words, "--partition", "all")
    finally:
        del cluster.environment["SITE_ENV"]
    assert "#SBATCH --partition=small\n#SBATCH --account='my project'\n" in both
    assert "#SBATCH --partition=all\n#SBATCH --account='my project'\n" in given


FILE_1B = str(shipped_configs()["1b_fineweb_edu"])


def submit_without_slurm(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *arguments: str
) -> int | str | None:
    """The exit code on a machine that has no sbatch."""
    monkeypatch.setattr("mixit_titan.slurm.cluster.shutil.which", lambda name: None)
    words = ["submit", *arguments, "--dump_folder", str(tmp_path / "run")]
    monkeypatch.setattr("sys.argv", ["mixit-titan", *words])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert list(tmp_path.iterdir()) == []
    return exit_.value.code


def test_a_dry_run_lists_all_problems_and_prints_the_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    words = [FILE_1B, "--dry-run", "--training.local_batch_size", "64", "--data.path", "nowhere"]
    assert submit_without_slurm(monkeypatch, tmp_path, *words) == 1
    said = capsys.readouterr()
    assert said.out.startswith("#!/usr/bin/env bash\n") and "#SBATCH --gpus-per-node=8" in said.out
    assert f"RUN_FOLDER={tmp_path / 'run'}" in said.out
    first, *problems = said.err.splitlines()
    assert first == "Nothing was submitted. 3 problems:" and len(problems) == 3
    assert "there is no sbatch on this machine" in problems[0]
    assert "does not fit on 8 x H100 (--gpu names others)" in problems[1]
    assert "--activation_checkpoint.mode full" in problems[1]
    assert "data.path = 'nowhere' does not exist" in problems[2]


FILE_8B = str(shipped_configs()["8b_fineweb_edu"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            [FILE_1B, "--training.stepz", "3", "--loss.num_chunks", "three"],
            ["did you mean 'training.steps'", "loss.num_chunks", "data.path = 'nowhere'"],
        ),
        (
            [FILE_8B, "--nodes", "1", "--loss.num_chunks", "7"],
            ["Invalid parallel dims", "num_chunks = 7 does not divide", "data.path = 'nowhere'"],
        ),
        # The ranks of a number of nodes that cannot be are those that the file names.
        (
            [FILE_8B, "--nodes", "0", "--save-seconds", "1", "--trainin.steps", "3"],
            [
                "--nodes is 0: it must be in 1..65536",
                "--save-seconds is 1: it must be in 10..1000000",
                "did you mean 'training'",
                "data.path = 'nowhere'",
            ],
        ),
        (
            [FILE_1B, "--model.flavor", "2b", "--gpu", "RTX4090", "--optimizer.lr", "-1"],
            [
                "unknown GPU 'RTX4090'",
                "optimizer.lr is -1",
                "unknown model.flavor '2b'",
                "data.path = 'nowhere'",
            ],
        ),
        (
            [FILE_1B, "--array-variants", "mixti,standard", "--watchh", "1"],
            ["unknown key 'watchh'", "unknown variant or mixer 'mixti'", "data.path = 'nowhere'"],
        ),
    ],
)
def test_a_dry_run_goes_on_behind_a_config_that_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    words: list[str],
    expected: list[str],
) -> None:
    words = [*words, "--dry-run", "--data.path", "nowhere"]
    assert submit_without_slurm(monkeypatch, tmp_path, *words) == 1
    first, *problems = capsys.readouterr().err.splitlines()
    expected = ["there is no sbatch", *expected]
    assert first == f"Nothing was submitted. {len(expected)} problems:", problems
    assert all(part in said for part, said in zip(expected, problems, strict=True)), problems


def test_a_dry_run_of_a_file_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert submit_without_slurm(monkeypatch, tmp_path, "gone.toml", "--dry-run") == 1
    said = capsys.readouterr()
    assert said.out == "" and "2 problems:" in said.err
    assert "there is no config file 'gone.toml'" in said.err


@pytest.mark.parametrize(
    ("arguments", "fits"),
    {
        "": True,
        "--training.local_batch_size 64": False,
        "--training.local_batch_size 64 --gpu B200": True,
        "--training.local_batch_size 64 --ignore-memory": True,
        "--training.local_batch_size 64 --activation_checkpoint.mode full": True,
        "--array-variants standard,frozen_mlp --training.local_batch_size 64": False,
    }.items(),
)
def test_a_run_that_cannot_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    arguments: str,
    fits: bool,
) -> None:
    monkeypatch.setattr("mixit_titan.slurm.submit.check_sbatch", lambda: None)
    code = submit_without_slurm(monkeypatch, tmp_path, FILE_1B, *arguments.split())
    error = capsys.readouterr().err
    assert code == 2 and error.count("\n") == 1
    # What fits stops at the next problem: the data are not there.
    assert ("does not fit on 8 x H100" in error) == (not fits)
    assert ("data.path = 'data/fineweb-edu-100bt' does not exist" in error) == fits


def test_fewer_nodes_must_fit_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Four shards of 8b fit, two do not."""
    path = str(shipped_configs()["8b_fineweb_edu"])
    words = [path, "--nodes", "2", "--gpus-per-node", "2", "--dry-run", "--data.path", "nowhere"]
    words += ["--parallelism.data_parallel_replicate_degree", "1"]
    words += ["--parallelism.data_parallel_shard_degree", "-1"]
    submit_without_slurm(monkeypatch, tmp_path, *words)
    assert "does not fit" not in capsys.readouterr().err
    submit_without_slurm(monkeypatch, tmp_path, *words, "--min-nodes", "1")
    assert "does not fit on 2 x H100" in capsys.readouterr().err


def test_what_a_script_says_of_itself_stays_a_comment() -> None:
    about = "The runs a\ntouch stolen\r\x0b#SBATCH --exclusive"
    head = array_script(["runs/a"], {}, about=about).splitlines()[:3]
    assert head[1] == "# The runs a touch stolen  #SBATCH --exclusive"
    assert head[0] == "#!/usr/bin/env bash" and head[2] == "#SBATCH --array=0-0"
