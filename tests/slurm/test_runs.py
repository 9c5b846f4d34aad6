"""Real runs on a real Slurm: whatever the cluster does, they end with the unbroken curve."""

import functools
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
SAVED_EVERY = 5  # steps, in the runs that are killed


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


def starts(folder: Path) -> list[int]:
    """The first step of each start."""
    return [int(step) for step in re.findall(r"Training starts at step (\d+)", log(folder))]


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
    saved = int(re.search(r"asked to stop at step (\d+): requeued", log(run))[1])
    assert starts(run) == [1, saved + 1] and f"finished at step {STEPS}" in log(run)
    assert_same_curve(run, unbroken)
    wandb = {folder.name.split("-")[-1] for folder in run.rglob("offline-run-*")}
    assert wandb == {(run / "wandb_run_0").read_text()}
    assert len(list(run.rglob("offline-run-*"))) == 2
    row = call(cluster, "status", str(run)).splitlines()[1].split()
    assert row[1:3] == ["finished", str(STEPS)] and row[-3:-1] == ["1", f"step-{STEPS}"]
    assert row[3] == f"{unbroken[-1]:.4f}"


def test_a_cancelled_run_saves_and_goes_on_when_it_is_submitted_again(
    cluster: Cluster, unbroken: list[float], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    job = submit(cluster, run, *SMALL)
    reaches(run, 5)
    cluster.run("scancel", job)
    assert cluster.wait(job) == "CANCELLED" and cluster.job(job)["Restarts"] == "0"
    wait_for(lambda: "Slurm is ending the job: not requeued" in log(run))
    saved = read_state(run)
    assert saved.word == "stopped"
    assert [folder.name for folder in (run / "checkpoint").iterdir()] == [f"step-{saved.step}"]
    again = cluster.run("sbatch", "--parsable", str(run / "job.sbatch")).strip()
    assert cluster.wait(again) == "COMPLETED", log(run)[-3000:]
    assert starts(run) == [1, saved.step + 1]
    assert_same_curve(run, unbroken)


def test_a_run_goes_on_without_the_nodes_that_are_gone(
    cluster: Cluster, unbroken: list[float], tmp_path: Path
) -> None:
    """First on another node, then, as it may, on one node fewer."""
    run = tmp_path / "run"
    cluster.wait_until_idle()
    flags = ["--nodes", "2", "--min-nodes", "1", *SMALL, "--checkpoint.interval", "10"]
    job = submit(cluster, run, *flags)
    used, gone, step = [], [], 0
    try:
        for which in (-1, 0):  # the last of its nodes, then the first, where the script runs
            reaches(run, step + 15)
            names = cluster.job(job)["NodeList"]
            used.append(cluster.run("scontrol", "show", "hostnames", names).split())
            gone.append(used[-1][which])
            cluster.power_off(gone[-1])
            step = read_state(run).step
        assert cluster.wait(job) == "COMPLETED", log(run)[-3000:]
        last = cluster.job(job)
    finally:
        for node in gone:
            cluster.power_on(node)
        cluster.wait_until_idle()
    assert len(used[0]) == 2 and gone[0] not in used[1]
    assert {last["NodeList"]} == set(NODES) - set(gone) and last["Restarts"] == "2"
    first, second, third = starts(run)
    assert first == 1 and 10 < second < third and second % 10 == third % 10 == 1
    assert_same_curve(run, unbroken)


def test_a_run_of_which_one_rank_stands_still_requeues_and_goes_on(
    cluster: Cluster, unbroken: list[float], tmp_path: Path
) -> None:
    """On another node than the one that notices."""
    run = tmp_path / "run"
    flags = [*SMALL, "--checkpoint.interval", "10", "--watch.step", "10"]
    job = submit(cluster, run, "--nodes", "2", *flags)
    reaches(run, 15)
    victims = ranks(cluster, run)
    assert len(victims) == 2
    second = next(pid for pid in victims if "RANK=1" in variables(pid))
    os.kill(second, signal.SIGSTOP)
    stopped = time.monotonic()
    wait_for(lambda: not set(victims) & set(ranks(cluster, run)), timeout=60, every=0.3)
    assert time.monotonic() - stopped > 10
    assert cluster.wait(job) == "COMPLETED", log(run)[-3000:]
    assert cluster.job(job)["Restarts"] == "1"
    step = int(re.search(r"hung at step (\d+): requeued", log(run))[1])
    assert f"rank 1 is stopped by a signal in step {step}" in log(run)
    for rank in range(2):
        assert 'trainer.py", line' in (run / "logs" / f"rank_{rank}.log").read_text()
    assert starts(run)[0] == 1 and starts(run)[1] in range(step - 10, step + 1)
    assert_same_curve(run, unbroken)


@pytest.fixture(scope="module")
def killed(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, str, list[float]]]:
    """Two runs that were killed ten times together: folder, job, seconds until all ranks ended."""
    root = tmp_path_factory.mktemp("killed")
    cluster.wait_until_idle()
    flags = [*SMALL, "--checkpoint.interval", str(SAVED_EVERY)]
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
    """In turn within a save, while it trains, and while it starts."""
    chance, seconds, step = random.Random(run.name), [], 0
    for number in range(times):
        if number % 3 == 2:
            wait_for(lambda: ranks(cluster, run))
            time.sleep(chance.uniform(0, 1))
        else:
            reaches(run, step + 3)
        victims = ranks(cluster, run)
        victim = chance.choice(victims)
        if number % 3 == 0:
            victim = next(pid for pid in victims if "RANK=0" in variables(pid))
            halt_in_a_save(run, victim, chance)
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        wait_for(lambda: not set(victims) & set(ranks(cluster, run)), every=0.3)  # noqa: B023
        seconds.append(time.monotonic() - killed)
        wait_for(lambda: len(restarts(run)) > number)  # noqa: B023
        step = max(step, restarts(run)[-1])
    return seconds


def halt_in_a_save(run: Path, first_rank: int, chance: random.Random) -> None:
    """The first rank gives a checkpoint its name: while it is halted, no save comes to its end."""
    unfinished = functools.partial((run / "checkpoint").glob, ".unfinished-*")
    while True:
        wait_for(lambda: list(unfinished()), every=0.002)
        time.sleep(chance.uniform(0, 0.05))
        os.kill(first_rank, signal.SIGSTOP)
        time.sleep(0.05)
        if list(unfinished()):
            return
        os.kill(first_rank, signal.SIGCONT)


def variables(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text().split("\0")


def restarts(run: Path) -> list[int]:
    """The step of each crash."""
    return [int(s) for s in re.findall(r"crashed at step (\d+)", (run / "restarts").read_text())]


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
    crashes = [step for step in restarts(run) if step > 0]  # 0: before its first step
    assert len(crashes) == len(starts(run)) - 1 and starts(run)[0] == 1
    for crash, start in zip(crashes, starts(run)[1:], strict=True):
        assert start > crash - SAVED_EVERY
    assert_same_curve(run, unbroken)
    assert not list((run / "checkpoint").glob(".unfinished-*"))
