"""The scripts for tasks, sweeps, lists and benchmarks run as they are, with the real commands."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

from mixit_titan.config.shipped import shipped_jobs

from .cluster import Cluster

SHAPE = ["--width", "16", "--layers", "1", "--heads", "2", "--batch", "4"]
TASK = [*SHAPE, "--steps", "2"]
BENCH = [*SHAPE, "--variants", "mixit", "--vocab", "64", "--seq-len", "16"]


def sbatch(cluster: Cluster, flags: list[str], name: str, *words: str, **settings: str) -> str:
    """Submit a shipped script; returns the job's id."""
    settings |= {"SITE_ENV": "/dev/null", "PYTHON": sys.executable}
    done = subprocess.run(
        ["sbatch", "--parsable", *flags, str(shipped_jobs()[name]), *words],
        env=cluster.environment | settings,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_task_bench_sweep_and_list(cluster: Cluster, tmp_path: Path) -> None:
    """Three points of a sweep for two jobs of an array: the first takes two of them. Three commands
    of a list for one job: one fails, and does not stop the last."""
    log = [f"--output={tmp_path}/log", "--open-mode=append"]
    grid = {"TASKS": "dyck", "VARIANTS": "standard mixit lstm", "SWEEP_FOLDER": f"{tmp_path}/grid"}
    task = ["dyck", "--variant", "mixit", *TASK, "--out", f"{tmp_path}/task"]
    sweep = sbatch(cluster, [*log, "--array=0-1"], "sweep", *TASK, **grid)
    listed = [
        ["task", "dyck", "--variant", "linear", *TASK, "--out", f"{tmp_path}/list/a point"],
        ["task", "dyck", "--variant", "nobody", *TASK, "--out", f"{tmp_path}/list/none"],
        ["task", "dyck", "--variant", "random", *TASK, "--out", f"{tmp_path}/list/it's $HOME"],
    ]
    (tmp_path / "points.txt").write_text("".join(f"{shlex.join(line)}\n" for line in listed))
    points = sbatch(cluster, [*log, "--array=0"], "points", f"{tmp_path}/points.txt")
    jobs = [
        f"{sweep}_0",
        f"{sweep}_1",
        sbatch(cluster, log, "task", *task),
        sbatch(cluster, log, "bench", *BENCH, "--out", f"{tmp_path}/bench"),
    ]
    for job in jobs:
        assert cluster.wait(job) == "COMPLETED", (tmp_path / "log").read_text()[-3000:]
    assert cluster.wait(f"{points}_0") == "FAILED"
    assert "unknown variant 'nobody'" in (tmp_path / "log").read_text()
    variants = {"task": "mixit", "list/a point": "linear", "list/it's $HOME": "random"}
    variants |= {f"grid/dyck_{v}": v for v in grid["VARIANTS"].split()}
    for folder, variant in variants.items():
        result = json.loads((tmp_path / folder / "result.json").read_text())
        assert (result["task"], result["variant"], result["steps"]) == ("dyck", variant, 2)
    assert (tmp_path / "bench" / "bench.json").is_file()
    assert cluster.job(jobs[-1])["TresPerNode"] == "gres:gpu:8"
