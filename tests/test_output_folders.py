"""Commands whose output folder is not writable end in one sentence that names it."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forkserver import Forkserver
from tests.fuzz.attempt import attempt, check
from tests.fuzz.files import BENCH

COMMANDS = {
    "task": "task modular --steps 2 --out OUT",
    "sweep": "sweep modular --variants standard --set steps=2 --out OUT",
    "suite": "suite state --only parity --set steps=2 --out OUT",
    "demo": "demo --steps 10 --out OUT",
    "bench": "bench --width 16 --out OUT",
    "bench on two ranks": "bench --width 16 --nproc 2 --out OUT",
    "compare": "bench --compare BENCH BENCH --out OUT",
    "reproduce": "reproduce --only table4 --steps 2 --out OUT",
    "ladder": "ladder --depths 2 --stacks standard --out OUT",
    "prepare": "prepare TEXT --tokenizer bytes --out OUT",
}


def a_file(out: Path) -> None:
    out.write_text("")


def below_a_file(out: Path) -> None:
    out.parent.rmdir()
    out.parent.write_text("")


def a_pipe(out: Path) -> None:
    os.mkfifo(out)


def a_loop(out: Path) -> None:
    out.symlink_to(out)


def read_only(out: Path) -> None:
    out.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro,size=64k", "none", str(out)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this machine mounts nothing for us")


@pytest.mark.parametrize("make", [a_file, below_a_file, a_pipe, a_loop, read_only])
def test_a_folder_that_cannot_be_written_to_is_one_sentence(
    tmp_path: Path, forkserver: Forkserver, make: Callable[[Path], None]
) -> None:
    out = tmp_path / "folder" / "out"
    out.parent.mkdir()
    make(out)
    (tmp_path / "bench.json").write_text(json.dumps(BENCH))
    (tmp_path / "text.txt").write_text("a text\n\n" * 99)
    words = {"OUT": str(out), "BENCH": "bench.json", "TEXT": "text.txt"}
    try:
        for name, command in COMMANDS.items():
            line = [words.get(word, word) for word in command.split()]
            outcome = attempt(forkserver, line, tmp_path, seconds=120)
            check(outcome, codes=(2,))
            (said,) = outcome.sentences
            assert str(out.parent) in said and "Make room" not in said, name
    finally:
        if make is read_only:
            subprocess.run(["umount", str(out)], check=False)
