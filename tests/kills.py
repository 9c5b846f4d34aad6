"""Kills commands at random moments and runs each again until it ends: what comes out must be what
an unbroken run gives.

    python -m tests.kills --count 100 --seed 0 --out /tmp/kills

Half of the kills wait for a file that is being written, and so fall into a save. Half of them hit
the command with all of its process group, half any one of the processes that it has started: a
rank, a watcher, a worker. After a kill none of the command's processes may be left.

Ranks are forks of their launcher here: torchrun would import torch for each, which takes longer
than all else. `mixit-titan drill` kills ranks of torchrun.
"""

import argparse
import contextlib
import hashlib
import inspect
import json
import os
import random
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from mixit_titan.config.shipped import shipped_configs
from mixit_titan.files import write_json
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.tables import markdown_table
from tests.forkserver import Forkserver, Process, mixit_titan
from tests.processes import is_alive

_SECONDS_TO_END = 120  # torchrun alone gives ranks that do not end 30 s
_KILLS_PER_RUN = 5
_RARE = ("sweep",)  # each of its starts imports torch
STEPS = 30
_TRAIN = [
    *("train", str(shipped_configs()["debug_mixit"]), "--training.steps", str(STEPS)),
    *("--model.width", "32", "--model.layers", "2", "--model.hidden", "64", "--model.vocab", "320"),
    *("--model.seq_len", "32", "--training.global_batch_size", "6", "--metrics.log_freq", "1"),
    *("--validator.freq", "10", "--validator.rows", "12", "--lr_scheduler.warmup_steps", "5"),
    *("--checkpoint.interval", "2", "--checkpoint.keep_latest_k", "3"),
]
_TASK = ["--steps", "60", "--eval-every", "10", "--train", "64", "--test", "64", "--batch", "8"]

Result = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A command, without the option that names its folder, and what it leaves there."""

    words: list[str]
    option: str
    result: Callable[[Path], Result]


def cases(text: Path) -> dict[str, Case]:
    prepare = ["prepare", str(text), "--train-tokenizer", "300", "--workers", "2"]
    sweep = ["sweep", "addition", "--variants", "mixit", "standard", "--seeds", "2", "--jobs", "2"]
    settings = [f"{key[2:]}={value}" for key, value in zip(_TASK[::2], _TASK[1::2], strict=True)]
    found = {"prepare": Case([*prepare, "--shard-tokens", "20000"], "--out", _all_files)}
    for ranks in (1, 2, 3):
        words = [*_TRAIN, "--nproc", str(ranks)]
        found[f"train on {ranks}"] = Case(words, "--dump_folder", _trained)
    found["task"] = Case(["task", "addition", "--device", "cpu", *_TASK], "--out", _task)
    found["sweep"] = Case([*sweep, "--device", "cpu", "--set", *settings], "--out", _sweep)
    return found


def write_corpus(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    documents = 3 * inspect.getsource(argparse).split("\n\n")
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))


def _all_files(folder: Path, pattern: str = "[!.]*") -> Result:
    """Without locks, and notes of what was verified."""
    files = sorted(file for file in folder.rglob(pattern) if file.is_file())
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def _trained(folder: Path) -> Result:
    """Losses, and the last checkpoint: weights, optimizer, place in the data. Its metadata have an
    identifier of their own in each save."""
    timed = ("seconds", "tokens_per_s", "tflops_per_rank", "memory_gib")
    lines = [
        {key: value for key, value in line.items() if key not in timed}
        for line in read_metrics(folder / "metrics.jsonl")
    ]
    saved = _all_files(folder / "checkpoint" / f"step-{STEPS}", "*.distcp")
    assert saved
    return {"metrics": lines, **saved}


def _task(folder: Path) -> Result:
    lines = [_untimed(line) for line in read_metrics(folder / "metrics.jsonl")]
    result = _untimed(json.loads((folder / "result.json").read_text()))
    weights = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    return {"metrics": lines, "result": result, "weights": weights}


def _sweep(folder: Path) -> Result:
    points = sorted(found.parent for found in folder.glob("*/result.json"))
    report = json.loads((folder / "sweep.json").read_text())
    return {point.name: _task(point) for point in points} | {"report": _untimed(report)}


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        timed = [key for key in value if "seconds" in key or "per_s" in key]
        return {key: _untimed(each) for key, each in value.items() if key not in timed}
    return [_untimed(each) for each in value] if isinstance(value, list) else value


def command(*words: str) -> None:
    """`mixit-titan WORDS`, for `Forkserver.start`."""
    with mock.patch("torch.distributed.run.run", _fork_ranks):
        mixit_titan(*words)


def _fork_ranks(options: argparse.Namespace) -> None:
    """What torchrun does. When one rank has failed, the others are killed at once."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = str(probe.getsockname()[1])
    shared = {"WORLD_SIZE": options.nproc_per_node, "MASTER_ADDR": "localhost"}
    shared |= {"MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "forked"}
    ranks = set()
    for rank in range(int(options.nproc_per_node)):
        process = os.fork()
        if process == 0:
            os.setsid()
            os.environ |= shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            os._exit(_exit_code(options.training_script_args))
        ranks.add(process)
    while ranks:
        process, status = os.wait()
        ranks.discard(process)
        if status:
            for other in ranks:
                os.kill(other, signal.SIGKILL)
            sys.exit(1)


def _exit_code(words: list[str]) -> int:
    try:
        mixit_titan(*words)
    except SystemExit as leaving:
        return int(leaving.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


class Killer:
    """All choices come from one seed; what they hit depends on the machine."""

    def __init__(self, server: Forkserver, root: Path, seed: int) -> None:
        self.server, self.root, self.draw = server, root, random.Random(seed)
        self.figures: dict[str, dict[str, int]] = {}

    def unbroken(self, name: str, case: Case) -> tuple[Result, float]:
        """Its result, and how long it took."""
        with self.server.start(time.time) as process:  # it has imported what all need by then
            process.wait(600)
        folder, begun = self.root / name / "unbroken", time.monotonic()
        with self.server.start(command, *case.words, case.option, str(folder)) as process:
            assert process.wait(600) == 0, process.output()
        return case.result(folder), time.monotonic() - begun

    def run(self, name: str, case: Case, expected: Result, seconds: float, most: int) -> int:
        """Kill one run up to `most` times and let it end. Returns how often it was killed."""
        counts = self.figures.setdefault(name, dict.fromkeys(("runs", "kills", "in a save"), 0))
        folder = self.root / name / f"run_{counts['runs']}"
        wanted, killed = self.draw.randint(1, min(most, _KILLS_PER_RUN)), 0
        while True:
            disturb = killed < wanted
            with self.server.start(command, *case.words, case.option, str(folder)) as process:
                family, saving = [], None
                if disturb:
                    family, saving = self._kill(process, folder, seconds)
                code = process.wait(_SECONDS_TO_END)
                _wait_until_gone(family)
                said = process.output()
            if saving is not None:
                killed += 1
                counts["kills"] += 1
                counts["in a save"] += saving
            elif not disturb or code == 0:
                assert code == 0, f"{name} in {folder}: {code}\n{said}"
                break
        counts["runs"] += 1
        found = case.result(folder)
        assert found == expected, f"{name} in {folder} differs from the unbroken run"
        shutil.rmtree(folder)
        return killed

    def _kill(
        self, process: Process, folder: Path, seconds: float
    ) -> tuple[list[int], bool | None]:
        """All processes of the command, and whether something was being written; None where it had
        ended before."""
        deadline = time.monotonic() + self.draw.uniform(0, seconds)
        if self.draw.random() < 0.5:
            time.sleep(self.draw.uniform(0, seconds / 2))
            while not _unfinished(folder) and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(self.draw.uniform(0, 0.02))
        else:
            time.sleep(max(0, deadline - time.monotonic()))
        family = descendants(process.pid)
        victim = self.draw.choice(family) if family and self.draw.random() < 0.5 else None
        with contextlib.suppress(ProcessLookupError):
            if process.poll() is None:
                if victim is None:
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    os.kill(victim, signal.SIGKILL)
                return family, bool(_unfinished(folder))
        return family, None


def _unfinished(folder: Path) -> list[Path]:
    """What is written under another name until it is complete."""
    with contextlib.suppress(FileNotFoundError):
        found = [*folder.rglob(".unfinished-*"), *folder.rglob("*.part")]
        return [*found, *folder.parent.glob(f".{folder.name}.part")]
    return []


def descendants(process: int) -> list[int]:
    """The processes that it has started, and those that these have."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found, new = [], [process]
    while new:
        new = [child for child, parent in parents.items() if parent in new]
        found += new
    return found


def _wait_until_gone(processes: list[int]) -> None:
    deadline = time.monotonic() + _SECONDS_TO_END
    while left := [each for each in processes if is_alive(each)]:
        assert time.monotonic() < deadline, f"processes {left} are left"
        time.sleep(0.05)


def kill_randomly(
    root: Path, *, count: int, seed: int, server: Forkserver, only: list[str] | None = None
) -> list[list[Any]]:
    """Rows of a table: command, runs, kills, those within a save."""
    write_corpus(root / "text.jsonl")
    chosen = {n: c for n, c in cases(root / "text.jsonl").items() if only is None or n in only}
    killer, killed, known, rounds = Killer(server, root, seed), 0, {}, 0
    while killed < count:
        rounds += 1
        for name, case in chosen.items():
            if name in _RARE and rounds % 2 and len(chosen) > 1:
                continue
            if name not in known and killed < count:
                known[name] = killer.unbroken(name, case)
                print(f"{name}: {known[name][1]:.1f} s unbroken", flush=True)
            if killed < count:
                killed += killer.run(name, case, *known[name], count - killed)
                print(f"{killed} kills: {killer.figures}", flush=True)
                write_json(root / "kills.json", killer.figures)
    return [[name, *counts.values()] for name, counts in killer.figures.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", help="names of the table's first column")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    server, begun = Forkserver(), time.monotonic()
    root = args.out.resolve()
    os.environ["XDG_CACHE_HOME"] = str(root / "cache")
    rows = kill_randomly(root, count=args.count, seed=args.seed, server=server, only=args.only)
    server.close()
    total = [sum(column) for column in list(zip(*rows, strict=True))[1:]]
    header = ("command", "runs", "kills", "within a save")
    print(markdown_table(header, [*rows, ["all", *total]], left=1))
    print(f"each run ended as the unbroken one did; {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    from tests import kills  # under its name: the forkserver finds `command` there

    kills.main()
