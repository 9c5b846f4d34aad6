"""Prepares a corpus in processes that kill themselves: `python interruption.py CORPUS OUT`.

OUT/1, OUT/3, ... are killed once, before that step to the disk. OUT/again is killed again and
again, each time a little later, until it is finished. OUT/whole is never killed. The processes are
forked: a start of Python for each would take minutes.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mixit_titan.data import journal, prepare, workers, writer
from mixit_titan.data.sources import find_corpus

with contextlib.suppress(ImportError):
    import gigatoken  # noqa: F401  # once, and not in each of the processes

STEPS = [
    (writer.ShardFile, "write"),
    (writer.ShardFile, "finish"),
    (writer, "sync_folder"),
    (journal, "write_json"),
    (journal.Journal, "close"),
    (prepare, "write_manifest"),
    (prepare, "train_tokenizer"),
]


def killed_at(step: int) -> None:
    done = 0

    def counting(function: Callable) -> Callable:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal done
            done += 1
            if done == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return counted

    for owner, name in STEPS:
        setattr(owner, name, counting(getattr(owner, name)))


def run(corpus: str, folder: Path, step: int) -> bool:
    """Whether it was killed. Returns when its workers have ended, too: each holds the pipe open."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        killed_at(step)
        workers._BATCH = 400
        prepare.prepare(find_corpus(corpus), 300, folder, workers=2, shard_tokens=800)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
    os.close(writing)
    assert os.read(reading, 1) == b""
    os.close(reading)
    return status != 0


if __name__ == "__main__":
    corpus, out = sys.argv[1], Path(sys.argv[2])
    assert not run(corpus, out / "whole", 0)
    step = 1
    while run(corpus, out / str(step), step):
        step += 2
    step = 10
    while run(corpus, out / "again", step):
        step += 10
