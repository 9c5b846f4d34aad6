"""Real runs on a real Slurm: whatever the cluster does, they end with the unbroken curve."""

import os
import random
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mixit_titan.runtime.run_state import RunState, read_state

from .cluster import NODES, Cluster, wait_for
from .conftest import SMALL, STEPS, assert_same_curve, call, log, submit

KILLS = {"two nodes": 3, "one node": 7}
KILLED_STEPS = 80  # of the schedule of STEPS: every other one is saved, which takes its time


def reaches(folder: Path, step: int) -> RunState:
    """Wait until the run is at `step` or further on."""

    def there() -> bool:
        state = read_state(folder)
        assert state is None or state.word != "finished", "it ended before it could be disturbed"
        assert "stopped for good" not in log(folder), log(folder)[-3000:]
        return state is not None and state.word == "running" and state.step >= step

    wait_for(there)
    return read_state(folder)


def ranks(cluster: Cluster, folder: Path) -> list[int]:
    """The processes of the run's ranks, and not their launchers."""
    return [
        pid
        for pid, words in cluster.all_processes().items()
        if f"-m mixit_titan train {folder}/config.toml" in words and "distributed.run" not in words
    ]


def test_two_nodes_give_the_losses_of_two_local_ranks(
    cluster: Cluster, unbroken: list[float], tmp_path: Path
) -> None:
    job = submit(cluster, tmp_path / "run", "--nodes", "2", *SMALL)
    assert cluster.wait(job) == "COMPLETED", log(tmp_path / "run")[-3000:]
    assert cluster.job(job)["NumNodes"] == "2" and cluster.job(job)["Restarts"] == "0"
    assert_same_curve(tmp_path / "run", unbroken)


def test_a_signalled_run_requeues_and_goes_on(
    cluster: Cluster, unbroken: list[float], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    job = submit(cluster, run, "--nodes", "2", *SMALL, "--metrics.enable_wandb")
    reaches(run, 5)
    for _ in range(2):  # the second does no harm
        cluster.run("scancel", "--batch", "--signal=USR1", job)
    state = call(cluster, "status", str(run)).splitlines()[1].split()[1]
    assert state in ("running", "completing", "pending")
    assert cluster.wait(job) == "COMPLETED", log(run)[-3000:]
    assert cluster.job(job)["Restarts"] == "1"
    assert "asked to stop at step" in log(run) and f"finished at step {STEPS}" in log(run)
    assert_same_curve(run, unbroken)
    wandb = {folder.name.split("-")[-1] for folder in run.rglob("offline-run-*")}
    assert wandb == {(run / "wandb_run_0").read_text()}
    assert len(list(run.rglob("offline-run-*"))) == 2
    row = call(cluster, "status", str(run)).splitlines()[1].split()
    assert row[1:3] == ["finished", str(STEPS)] and row[-2:] == ["1", f"step-{STEPS}"]
    assert row[3] == f"{unbroken[-1]:.4f}"


def test_a_run_goes_on_without_the_nodes_that_are_gone(
    cluster: Cluster, unbroken: list[float], tmp_path: Path
) -> None:
    """First on another node, then, as it may, on one node fewer."""
    run = tmp_path / "run"
    cluster.wait_until_idle()
    flags = ["--nodes", "2", "--min-nodes", "1", *SMALL, "--checkpoint.interval", "10"]
    job = submit(cluster, run, *flags)
    gone = []
    try:
        for restarts, step in enumerate((15, 60)):
            reaches(run, step)
            used = cluster.run(
                "scontrol", "show", "hostnames", cluster.job(job)["NodeList"]
            ).split()
            assert not set(used) & set(gone)
            # The last node of the first start, and the first of the second, where the script runs.
            gone.append(used[-1 if restarts == 0 else 0])
            cluster.power_off(gone[-1])
            (run / "state").unlink()  # what is there next comes from the next start
            wait_for(lambda n=restarts: cluster.job(job)["Restarts"] == str(n + 1), every=0.5)
        assert cluster.wait(job) == "COMPLETED", log(run)[-3000:]
        assert cluster.job(job)["NodeList"] in set(NODES) - set(gone)
    finally:
        for node in gone:
            cluster.power_on(node)
        cluster.wait_until_idle()
    assert_same_curve(run, unbroken)


@pytest.fixture(scope="module")
def killed(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, str, list[float]]]:
    """Two runs that were killed ten times together: folder, job, seconds until all ranks ended."""
    root = tmp_path_factory.mktemp("killed")
    flags = [*SMALL, "--checkpoint.interval", "2", "--training.steps", str(KILLED_STEPS)]
    flags += ["--lr_scheduler.total_steps", str(STEPS)]
    jobs = {
        name: submit(cluster, root / name, "--nodes", str(nodes), *flags)
        for nodes, name in ((2, "two nodes"), (1, "one node"))
    }
    with ThreadPoolExecutor() as threads:
        seconds = {
            name: threads.submit(kill_again_and_again, cluster, root / name, KILLS[name])
            for name in jobs
        }
        return {name: (root / name, jobs[name], seconds[name].result()) for name in jobs}


def kill_again_and_again(cluster: Cluster, run: Path, times: int) -> list[float]:
    """Every other time within a save, else at any moment."""
    chance, seconds, step = random.Random(run.name), [], 0
    for number in range(times):
        reaches(run, step + 3)
        victims = ranks(cluster, run)
        if number % 2 == 0:
            wait_for(lambda: list((run / "checkpoint").glob(".unfinished-*")), every=0.002)
        else:
            time.sleep(chance.uniform(0, 0.2))
        os.kill(chance.choice(victims), signal.SIGKILL)
        killed = time.monotonic()
        wait_for(lambda: not set(victims) & set(ranks(cluster, run)), every=0.3)  # noqa: B023
        seconds.append(time.monotonic() - killed)
        wait_for(lambda: len(restarts(run)) > number)  # noqa: B023
        step = int(re.search(r"crashed at step (\d+)", restarts(run)[-1])[1])
    return seconds


def restarts(run: Path) -> list[str]:
    return (run / "restarts").read_text().splitlines()


@pytest.mark.parametrize("name", KILLS)
def test_a_killed_rank_ends_all_ranks(
    killed: dict[str, tuple[Path, str, list[float]]], name: str
) -> None:
    _, _, seconds = killed[name]
    assert len(seconds) == KILLS[name] and max(seconds) < 30, seconds


@pytest.mark.parametrize("name", KILLS)
def test_a_run_that_is_killed_again_and_again_ends_with_the_unbroken_curve(
    cluster: Cluster,
    unbroken: list[float],
    killed: dict[str, tuple[Path, str, list[float]]],
    name: str,
) -> None:
    run, job, _ = killed[name]
    assert cluster.wait(job) == "COMPLETED", log(run)[-3000:]
    assert cluster.job(job)["Restarts"] == str(KILLS[name])
    assert_same_curve(run, unbroken[:KILLED_STEPS])
    assert not list((run / "checkpoint").glob(".unfinished-*"))
