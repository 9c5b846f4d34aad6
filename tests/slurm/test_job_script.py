"""What the job script decides, on a real Slurm, with a program in place of the training that ends
as it is told. The jobs are submitted together, because a requeued one waits for some seconds."""

import shlex
import subprocess
from pathlib import Path
from unittest import mock

import pytest

from mixit_titan.config.shipped import shipped_jobs
from mixit_titan.runtime.run_state import read_state

from .cluster import Cluster, wait_for
from .conftest import MIXIT, call, log, submit

# Called as `PYTHON -m torch.distributed.run ... -m mixit_titan train CONFIG ... --dump_folder F`.
# At its n-th start it does what the n-th line of F/acts says: it writes its state, and ends with
# the exit code after the comma; or it waits for ever, or until a signal comes.
PROGRAM = """\
#!/usr/bin/env python3
import pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[-1])
with (folder / "starts").open("a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
number = len((folder / "starts").read_text().splitlines())
state, _, end = (folder / "acts").read_text().splitlines()[number - 1].partition(", ")
def leave(*_):
    (folder / "state").write_text("stopped 5\\n")
    sys.exit()
if end == "until a signal":
    signal.signal(signal.SIGUSR1, leave)
    signal.signal(signal.SIGTERM, leave)
(folder / "state").write_text(state + "\\n")
if end in ("until a signal", "for ever"):
    time.sleep(3600)
sys.exit(int(end or 0))
"""

ACTS = {
    "finishes": ["finished 9"],
    "fails": ["failed 31 the loss is not finite, 1"],
    "breaks at once": ["starting 0, 3"],
    "crashes at one step": ["running 7, 1", "running 7, 1", "finished 9"],
    "crashes further on": ["running 7, 1", "running 8, 1", "finished 9"],
    "crashes while starting": ["running 7, 1", "starting 0, 1", "finished 9"],
    "crashes when it starts again": ["stopped 5", "starting 0, 1", "finished 9"],
    "stands still": [
        "hung 7 the run makes no progress, 1",
        "hung 9 it does again, 1",
        "finished 9",
    ],
    "stands still at one step": ["hung 7 the run makes no progress, 1"] * 2 + ["finished 9"],
    "is preempted": ["stopped 5", "stopped 5", "finished 9"],
    "is preempted often": ["stopped 5", "stopped 6", "stopped 7", "finished 9"],
    "is signalled": ["running 4, until a signal", "finished 9"],
    "hangs": ["running 4, for ever", "finished 9"],
    "is cancelled": ["running 4, until a signal"],
}
FLAGS = {"is preempted often": ["--max-restarts", "2"], "hangs": ["--save-seconds", "10"]}


class Jobs:
    def __init__(self, cluster: Cluster, root: Path) -> None:
        self.cluster, self.root = cluster, root
        self.numbers: dict[str, str] = {}
        self.plain_log = root.parent / "plain.out"
        root.mkdir()
        program = root / "program"
        program.write_text(PROGRAM)
        program.chmod(0o755)
        site = root / "site.env"
        site.write_text(f"PYTHON={shlex.quote(str(program))}\n")
        self.environment = cluster.environment | {"SITE_ENV": str(site)}

    def prepare(self, name: str, acts: list[str]) -> Path:
        folder = self.root / name
        folder.mkdir(parents=True)
        (folder / "acts").write_text("\n".join(acts) + "\n")
        return folder

    def submit(self, name: str, *flags: str) -> None:
        with mock.patch.object(self.cluster, "environment", self.environment):
            self.numbers[name] = submit(self.cluster, self.root / name, *flags)

    def submit_plain(self) -> None:
        """By sbatch alone, with Slurm's own signal: a minute's limit, 45 seconds of it to save."""
        folder = self.prepare("plain", ["running 4, until a signal", "finished 9"])
        flags = ["--nodes=1", "--time=1", "--signal=B:USR1@45", f"--output={self.plain_log}"]
        script = str(shipped_jobs()["pretrain"])
        done = subprocess.run(
            ["sbatch", "--parsable", *flags, script, MIXIT, "--debug.seed", "1"],
            env=self.environment | {"RUN_FOLDER": str(folder)},
            capture_output=True,
            text=True,
            check=True,
        )
        self.numbers["plain"] = done.stdout.strip()

    def starts(self, name: str) -> list[str]:
        return (self.root / name / "starts").read_text().splitlines()

    def restarts(self, name: str) -> list[str]:
        return (self.root / name / "restarts").read_text().splitlines()


@pytest.fixture(scope="module")
def jobs(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    """All of ACTS, submitted at once. The folder's name needs quotes wherever it is used."""
    jobs = Jobs(cluster, tmp_path_factory.mktemp("runs") / "it's 100% $HOME")
    jobs.submit_plain()
    for name, acts in ACTS.items():
        jobs.prepare(name, acts)
        jobs.submit(name, *FLAGS.get(name, []))
    for name in ("is signalled", "hangs", "is cancelled"):
        wait_for(lambda name=name: is_running(jobs.root / name))
        signal = [] if name == "is cancelled" else ["--batch", "--signal=USR1"]
        cluster.run("scancel", *signal, jobs.numbers[name])
    return jobs


def is_running(folder: Path) -> bool:
    state = read_state(folder)
    return state is not None and state.word == "running"


@pytest.mark.parametrize(
    ("name", "ends", "restarts", "says"),
    [
        ("finishes", "COMPLETED", 0, "finished at step 9"),
        ("fails", "FAILED", 0, "stopped for good at step 31: the loss is not finite"),
        ("breaks at once", "FAILED", 0, "stopped for good: the run crashed before its first step"),
        ("crashes at one step", "FAILED", 1, "stopped for good: the run crashed again at step 7"),
        ("crashes further on", "COMPLETED", 2, "crashed at step 8: requeued"),
        ("stands still", "COMPLETED", 2, "hung at step 9: requeued"),
        ("stands still at one step", "FAILED", 1, "stopped for good: the run hung again at step 7"),
        ("crashes while starting", "COMPLETED", 2, "crashed at step 0: requeued"),
        ("crashes when it starts again", "COMPLETED", 2, "crashed at step 0: requeued"),
        ("is preempted", "COMPLETED", 2, "asked to stop at step 5: requeued"),
        ("is preempted often", "FAILED", 2, "restarted 2 times already (MAX_RESTARTS)"),
        ("is signalled", "COMPLETED", 1, "asked to stop at step 5: requeued"),
        ("hangs", "COMPLETED", 1, "asked to stop at step 4: requeued"),
        ("is cancelled", "CANCELLED", 0, "Slurm is ending the job: not requeued"),
    ],
)
def test_a_job_ends_or_is_requeued(
    jobs: Jobs, name: str, ends: str, restarts: int, says: str
) -> None:
    number = jobs.numbers[name]
    assert jobs.cluster.wait(number) == ends
    assert jobs.cluster.job(number)["Restarts"] == str(restarts)
    assert len(jobs.restarts(name)) == restarts
    assert len(jobs.starts(name)) == restarts + 1
    wait_for(lambda: says in log(jobs.root / name), 60)  # a cancelled job leaves before its script


def test_status_is_a_table_of_the_runs(jobs: Jobs) -> None:
    for name in ("finishes", "fails", "is preempted"):
        jobs.cluster.wait(jobs.numbers[name])
    folders = [str(jobs.root / name) for name in ("finishes", "fails", "is preempted")]
    head, *rows = call(jobs.cluster, "status", *folders).splitlines()
    columns = ["run", "state", "step", "loss", "tokens/s", "restarts", "checkpoint", "goodput"]
    assert head.split() == columns
    wanted = [["finished", "9", "0"], ["failed", "31", "0"], ["finished", "9", "2"]]
    for folder, row, (state, step, restarts) in zip(folders, rows, wanted, strict=False):
        assert row.startswith(folder)
        assert row.removeprefix(folder).split() == [state, step, "-", "-", restarts, "-", "-"]
    assert rows[3] == f"{folders[1]}: the loss is not finite"


def test_a_run_is_frozen_and_relaunched_from_its_folder(jobs: Jobs) -> None:
    folder = jobs.prepare("again", ["finished 9", "finished 12"])
    jobs.submit("again", "--training.steps", "9", "--data.tokenizer", "bytes")
    assert jobs.cluster.wait(jobs.numbers["again"]) == "COMPLETED"
    assert (folder / "config.toml").read_text() == Path(MIXIT).read_text()
    done = subprocess.run(
        ["sbatch", "--parsable", str(folder / "job.sbatch"), "--training.steps", "12"],
        env=jobs.environment,
        capture_output=True,
        text=True,
        cwd="/",
        check=True,
    )
    assert jobs.cluster.wait(done.stdout.strip()) == "COMPLETED"
    first, second = jobs.starts("again")
    frozen = f"train {folder}/config.toml --dump_folder {folder} --training.steps 9"
    assert f"{frozen} --data.tokenizer bytes --dump_folder {folder}" in first
    assert f"--data.tokenizer bytes --training.steps 12 --dump_folder {folder}" in second


def test_two_jobs_do_not_run_in_one_folder(jobs: Jobs) -> None:
    folder = jobs.prepare("shared", ["running 4, until a signal"])
    jobs.submit("shared")
    wait_for(lambda: is_running(folder))
    first = jobs.numbers["shared"]
    second = jobs.cluster.run("sbatch", "--parsable", str(folder / "job.sbatch")).strip()
    assert jobs.cluster.wait(second) == "FAILED"
    assert f"job {first} is still running in {folder}: wait for it, or stop it" in log(folder)
    assert (folder / "job").read_text() == f"{first}\n" and len(jobs.starts("shared")) == 1
    jobs.cluster.run("scancel", first)


def test_an_array_runs_each_variant_in_its_own_folder(jobs: Jobs) -> None:
    for variant in ("standard", "mixit"):
        jobs.prepare(f"array/{variant}", ["stopped 5", "finished 9"])
    jobs.submit("array", "--array-variants", "standard,mixit", "--time", "1:00:00")
    for task, variant in enumerate(("standard", "mixit")):
        assert jobs.cluster.wait(f"{jobs.numbers['array']}_{task}") == "COMPLETED"
        folder = jobs.root / "array" / variant
        assert len(jobs.restarts(f"array/{variant}")) == 1
        assert (
            f"--model.variant {variant} --dump_folder {folder}"
            in jobs.starts(f"array/{variant}")[1]
        )
        assert "finished at step 9" in log(folder)


def test_a_job_waits_for_another(jobs: Jobs) -> None:
    for name in ("before", "after"):
        jobs.prepare(name, ["finished 9"])
    jobs.submit("before")
    jobs.submit("after", "--after", jobs.numbers["before"], "--mail", "a@b.c")
    assert jobs.cluster.wait(jobs.numbers["after"]) == "COMPLETED"
    ends = [jobs.cluster.job(jobs.numbers[n]) for n in ("before", "after")]
    assert ends[0]["EndTime"] <= ends[1]["StartTime"]
    assert ends[1]["MailUser"] == "a@b.c" and "REQUEUE" in ends[1]["MailType"]


def test_pretrain_submits_as_it_is_and_is_warned_before_its_limit(jobs: Jobs) -> None:
    assert jobs.cluster.wait(jobs.numbers["plain"]) == "COMPLETED"
    assert len(jobs.restarts("plain")) == 1
    assert "asked to stop at step 5: requeued" in jobs.plain_log.read_text()
    start, folder = jobs.starts("plain")[0], jobs.root / "plain"
    assert "--nnodes=1 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=node" in start
    assert f"train {MIXIT} --debug.seed 1 --dump_folder {folder}" in start


def test_all_scripts_are_clean_and_acceptable(cluster: Cluster) -> None:
    scripts = shipped_jobs()
    assert sorted(scripts) == ["bench", "points", "pretrain", "sweep", "task", "test_gpu"]
    checked = subprocess.run(["shellcheck", *map(str, scripts.values())], capture_output=True)
    assert checked.returncode == 0, checked.stdout.decode()
    for script in scripts.values():
        cluster.run("sbatch", "--test-only", str(script), "x")
