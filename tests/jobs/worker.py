"""Runs the jobs that its words name, in OUT: worker.py OUT AT_A_TIME WORK ..."""

import gc
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path

from mixit_titan.errors import ConfigError, RunFailed, one_sentence
from mixit_titan.jobs.job import Job
from mixit_titan.jobs.runner import Runner


def write(folder: Path) -> None:
    found = {"pid": os.getpid(), "collects": gc.isenabled(), "frozen": gc.get_freeze_count()}
    (folder / "result.json").write_text(json.dumps(found))


def count_threads(folder: Path) -> None:
    import torch

    (folder / "result.json").write_text(json.dumps({"threads": torch.get_num_threads()}))


def mistake(folder: Path) -> None:
    raise ConfigError("it is too large: make it smaller")


def give_up(folder: Path) -> None:
    raise RunFailed("it cannot go on")


def leave(folder: Path) -> None:
    print("leaving")
    sys.exit(7)


def crash(folder: Path) -> None:
    raise ArithmeticError("an error of ours")


def second_time(folder: Path) -> None:
    """Finished when it is started again."""
    if (folder / "begun").exists():
        write(folder)
    (folder / "begun").touch()


def sleep(folder: Path) -> None:
    (folder / "pid").write_text(str(os.getpid()))
    time.sleep(600)


def read(folder: Path) -> dict | None:
    path = folder / "result.json"
    return json.loads(path.read_text()) if path.exists() else None


def job(out: Path, name: str) -> Job:
    folder = out / name
    return Job(
        folder=folder,
        name=name,
        kind="test",
        work=globals()[name.removesuffix("_alone").rstrip("0123456789")],
        arguments=(folder,),
        read=read,
        alone=name.endswith("_alone"),
    )


if __name__ == "__main__":
    out, at_a_time, *names = sys.argv[1:]
    with one_sentence():
        runner = Runner([job(Path(out), name) for name in names], at_a_time=int(at_a_time))
        runner.run()
    failed = {folder.name: code for folder, code in runner.failed.items()}
    left = [process.pid for process in multiprocessing.active_children()]
    print(json.dumps({"failed": failed, "left": left, "torch": "torch" in sys.modules}))
