"""Runs without progress are ended and say where they were; those that are slow or paused are
not."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mixit_titan.config.run import load_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.errors import ConfigError
from mixit_titan.runtime.heartbeat import describe, read_heartbeats
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.runtime.run_state import read_state
from mixit_titan.runtime.train import train
from mixit_titan.runtime.trainer import MixitTrainer
from mixit_titan.runtime.watch import Progress, WatchConfig
from tests.forkserver import Forkserver

from .conftest import SMALL
from .watched_worker import LIMIT

ROOT = Path(__file__).parents[2]


def pass_time(progress: Progress, seconds: float) -> bool:
    """Whether the limit was passed on the way."""
    passed = 0.0
    while passed < seconds:
        tick = min(0.5, seconds - passed)
        progress.wait(tick, 1.0)
        passed += tick
        if progress.seconds > progress.limit:
            return True
    return False


def test_a_thousand_uneven_steps_are_no_hang_and_what_follows_is() -> None:
    chance, progress = random.Random(0), Progress(WatchConfig().limits())
    progress.begin("first step", 1)
    assert not pass_time(progress, 1000)  # it compiles
    slowest = 0.0
    for step in range(2, 1003):
        progress.begin("step" if step > 5 else "first step", step)
        seconds = min(chance.expovariate(1.0) ** 3, 25)
        slowest = max(slowest, seconds)
        assert not pass_time(progress, seconds)
        progress.begin("save", step)
        assert not pass_time(progress, 1700 if step % 500 == 0 else 0.1)
    assert 5 < slowest <= 25
    progress.begin("step", 2000)
    assert not pass_time(progress, 24 + 10 * slowest)
    assert pass_time(progress, 2)


def test_a_set_limit_is_not_learned() -> None:
    progress = Progress(WatchConfig(step=7.0).limits())
    for step in range(10):
        progress.begin("step", step)
        pass_time(progress, 6)
    assert progress.limit == 7.0


def test_a_pause_of_the_machine_is_not_counted() -> None:
    progress = Progress(WatchConfig(step=7.0).limits())
    progress.begin("step", 1)
    progress.wait(3600, 1.0)
    assert progress.seconds == 2.0


def test_the_sentence_names_those_first_that_are_waited_for() -> None:
    here = {"section": "step", "step": 12, "seconds": 31.4, "stopped": False, "heard": "x"}
    ranks = {rank: dict(here) for rank in range(8)}
    assert describe(ranks, 8, "x") == "ranks 0-7 are in step 12 for 31 s"
    ranks[1] |= {"stopped": True, "seconds": 33.0}
    ranks[5] |= {"section": "save", "step": 11}
    ranks[6] |= {"heard": ""}
    del ranks[7]
    assert describe(ranks, 8, "x") == (
        "ranks 6-7 show no sign of life; rank 1 is stopped by a signal in step 12 for 33 s; "
        "rank 5 is in save (step 11) for 31 s; ranks 0, 2-4 are in step 12 for 31 s"
    )


@pytest.mark.parametrize(("key", "value"), [("step", "0"), ("save", "-1"), ("start", "nan")])
def test_limits_are_above_zero(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"watch.{key} is .*: it must be in 1.."):
        load_run(str(shipped_configs()["debug_mixit"]), [f"--watch.{key}", value], world_size=1)


# Name -> what each rank does (watched_worker.py).
RANKS = {
    "one of two is stopped": [["steps 5", "step 60"], ["steps 5", "stop", "step 60"]],
    "wedged": [["steps 5", "wedge"]],
    "all are stopped": [["steps 5", "stop", "steps 50"], ["steps 5", "stop", "steps 50"]],
    "uneven": [["steps 1000", f"step {LIMIT * 0.7}", "steps 20"]],
    "slow save": [["steps 5", "save 3", "steps 5"]],
    "long validation": [["steps 5", *[f"validation {LIMIT * 0.4}"] * 4, "steps 5"]],
    "its watcher is killed": [["save 4", "steps 5", "step 3", "steps 5"]],
    "its watcher is stopped": [["save 4", "burst 20000", "steps 5"]],
    "unwatched": [["unwatched", "steps 5", "step 3"]],
    "killed": [["fork", "save 60"]],
}


class Ranks:
    """What became of the ranks of one line."""

    def __init__(self, folder: Path, acts: list[list[str]]) -> None:
        self.folder = folder
        start = time.monotonic()
        ranks = [self._start(rank, len(acts), words) for rank, words in enumerate(acts)]
        self.pids = [int(rank.stdout.readline()) for rank in ranks]
        if folder.name == "all are stopped":
            time.sleep(3)
            for pid in self.pids:
                os.kill(pid, signal.SIGCONT)
        elif folder.name == "killed":
            self._wait_for_the_watcher()
            os.kill(self.pids[0], signal.SIGKILL)
        elif folder.name.startswith("its watcher is"):
            self._wait_for_the_watcher()
            self.watchers = watchers(folder)
            self.sessions = [os.getsid(pid) for pid in self.watchers]
            how = signal.SIGKILL if folder.name.endswith("killed") else signal.SIGSTOP
            for pid in self.watchers:
                os.kill(pid, how)
        self.said = [rank.communicate(timeout=50)[1] for rank in ranks]
        self.codes = [rank.returncode for rank in ranks]
        self.seconds = time.monotonic() - start

    def _start(self, rank: int, ranks: int, acts: list[str]) -> subprocess.Popen:
        words = [sys.executable, "-m", "tests.runtime.watched_worker", str(self.folder)]
        words += [str(rank), str(ranks), *acts]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(words, cwd=ROOT, **pipes)

    def _wait_for_the_watcher(self) -> None:
        deadline = time.monotonic() + 20
        while "save" not in str(read_heartbeats(self.folder, 1)):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def log(self, rank: int) -> str:
        return (self.folder / "logs" / f"rank_{rank}.log").read_text()


def watchers(folder: Path) -> list[int]:
    """Of the runs in the folder."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "mixit_titan.runtime.watch" in words and f'"{folder}' in words[-2]:
            found.append(int(file.parent.name))
    return found


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ranks]:
    root = tmp_path_factory.mktemp("watched").resolve()
    with ThreadPoolExecutor(len(RANKS)) as threads:
        started = {n: threads.submit(Ranks, root / n, acts) for n, acts in RANKS.items()}
        return {name: ranks.result() for name, ranks in started.items()}


def test_one_stopped_rank_of_two_ends_both(ended: dict[str, Ranks]) -> None:
    ranks = ended["one of two is stopped"]
    assert ranks.codes == [-signal.SIGKILL] * 2 and ranks.seconds < 20
    state = read_state(ranks.folder)
    assert state.word == "hung" and state.step == 7
    assert re.search(r"rank 1 is stopped by a signal in step 6 for \d+ s; rank 0 is", state.said)
    assert f"longer than the limit of {LIMIT:.0f} s" in state.said
    said = "".join(ranks.said)
    assert said.count("mixit-titan: the run makes no progress") == 1 and "Traceback" not in said
    for rank in range(2):
        assert 'watched_worker.py", line' in ranks.log(rank)


def test_a_rank_that_keeps_pythons_lock_is_ended_with_its_stack(ended: dict[str, Ranks]) -> None:
    ranks = ended["wedged"]
    assert ranks.codes == [-signal.SIGKILL] and ranks.seconds < 20
    assert "in wedge" in ranks.log(0)
    assert read_state(ranks.folder).word == "hung"


@pytest.mark.parametrize(
    "name", ["all are stopped", "uneven", "slow save", "long validation", "unwatched"]
)
def test_no_false_alarm(ended: dict[str, Ranks], name: str) -> None:
    assert set(ended[name].codes) == {0}, ended[name].said
    assert read_state(ended[name].folder) is None
    assert not (ended[name].folder / "heartbeat" / "alarm").read_text()


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_rank_trains_on_without_its_watcher(ended: dict[str, Ranks], how: str) -> None:
    assert ended[f"its watcher is {how}"].codes == [0]


def test_neither_ctrl_c_nor_ctrl_z_is_for_the_watcher(ended: dict[str, Ranks]) -> None:
    ranks = ended["its watcher is killed"]
    assert len(ranks.watchers) == 1 and ranks.sessions == ranks.watchers


def test_no_watcher_outlives_its_rank(ended: dict[str, Ranks]) -> None:
    ranks = ended["killed"]
    assert ranks.codes == [-signal.SIGKILL]
    assert ranks.seconds < 30  # a watcher has the rank's stderr, which was read to its end
    deadline = time.monotonic() + 10
    while any(watchers(ranks.folder) for ranks in ended.values()):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def stop_at(step: int, rank: int) -> None:
    """Let one rank stop itself in that step."""
    train_step = MixitTrainer.train_step

    def stopped(self: MixitTrainer, data: object) -> None:
        if self.step == step and os.environ["RANK"] == str(rank):
            os.kill(os.getpid(), signal.SIGSTOP)
        train_step(self, data)

    MixitTrainer.train_step = stopped


def train_and_stop(words: list[str]) -> None:
    stop_at(8, rank=1)
    config = str(shipped_configs()["debug_mixit"])
    train(load_run(config, words, world_size=2))


@pytest.fixture
def stopped(tmp_path: Path, forkserver: Forkserver) -> Iterator[Path]:
    """A real run, of which one rank of two has stopped itself."""
    from torch.distributed import TCPStore

    store = TCPStore("localhost", 0, is_master=True)
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port)}
    shared |= {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    words = [*SMALL, "--dump_folder", str(tmp_path), "--watch.step", "2"]
    ranks = []
    for rank in range(2):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        ranks.append(forkserver.start(train_and_stop, words, environment=os.environ | shared | own))
    assert [rank.wait(120) for rank in ranks] == [-signal.SIGKILL] * 2, ranks[0].output()
    assert "Traceback" not in "".join(rank.output() for rank in ranks)
    for rank in ranks:
        rank.__exit__()
    yield tmp_path


def test_a_training_of_which_one_rank_stands_still_is_ended(stopped: Path) -> None:
    state = read_state(stopped)
    assert state.word == "hung" and state.step == 8
    assert "rank 1 is stopped by a signal in step 8" in state.said
    assert read_metrics(stopped / "metrics.jsonl")[-1]["step"] == 7
    for rank in range(2):
        assert 'trainer.py", line' in (stopped / "logs" / f"rank_{rank}.log").read_text()
