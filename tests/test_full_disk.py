"""A full disk ends in one sentence, and the space of unfinished output is freed."""

import base64
import errno
import os
import random
from pathlib import Path

import pytest
from safetensors import SafetensorError
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import _FileSystemWriter

from mixit_titan.config.shipped import shipped_configs
from mixit_titan.drill.small_disk import small_disk
from mixit_titan.errors import disk_is_full
from mixit_titan.runtime.checkpoint_writer import CheckpointWriter
from mixit_titan.runtime.run_state import read_state
from tests.forkserver import Forkserver, mixit_titan
from tests.runtime.conftest import SMALL, Runs

# An embedding of some megabytes: torch hides why it cannot be written.
TRAIN = ["train", str(shipped_configs()["debug_mixit"]), *SMALL, "--model.vocab", "20000"]
TRAIN += ["--checkpoint.interval", "2"]
TASK = ["task", "addition", "--steps", "20", "--eval-every", "5", "--device", "cpu", "--out"]
BENCH = ["bench", "--variants", "mixit", "--layers", "1", "--width", "32", "--heads", "2"]
BENCH += ["--vocab", "64", "--seq-len", "32", "--batch", "1", "--rounds", "8", "--out"]
COMMANDS = {
    "train": ("25m", [*TRAIN, "--dump_folder"]),
    "train, asynchronous": ("25m", [*TRAIN, "--checkpoint.async_mode", "async", "--dump_folder"]),
    "train, at the start": ("8k", [*TRAIN, "--dump_folder"]),
    "task": ("1500k", TASK),
    "task, at the start": ("8k", TASK),
    "prepare": ("1m", ["prepare", "text.txt", "--tokenizer", "bytes", "--out"]),
    "bench": ("8k", BENCH),
    "demo": ("8k", ["demo", "--steps", "10", "--out"]),
    "export": ("16k", ["export", "RUN", "--out"]),
}


def no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_is_one_sentence(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forkserver: Forkserver, name: str
) -> None:
    size, words = COMMANDS[name]
    words = [str(runs.folder("mixit")) if word == "RUN" else word for word in words]
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_bytes(base64.encodebytes(random.Random(0).randbytes(1_500_000)))
    if words[0] == "train":
        words = [*words[:2], "--data.path", str(runs.data), *words[2:]]
    with small_disk(tmp_path / "disk", size) as mounted:
        if not mounted:
            pytest.skip("no small disk can be mounted here")
        folder = tmp_path / "disk" / "out"
        with forkserver.start(mixit_titan, *words, str(folder)) as process:
            code = process.wait(300)
            output = process.output()
        assert code in (1, 2) and "Traceback" not in output, output
        lines = [line for line in output.splitlines() if line.startswith("mixit-titan: ")]
        assert len(lines) == 1, output
        assert "is full" in lines[0] or "No space left on device" in lines[0]
        assert "make room" in lines[0].lower()
        left = [path.name for path in folder.rglob("*")]
        assert not [x for x in left if x.startswith(".unfinished") or x.endswith(".part")]
        if size == "25m":
            state = read_state(folder)
            assert state.word == "failed" and f"is full at step {state.step}" in state.said


def test_what_says_that_a_disk_is_full() -> None:
    hidden = RuntimeError("unexpected pos 704 vs 598")
    hidden.__context__ = no_space()
    of_ranks = CheckpointException("write", {1: (no_space(), [])})
    rust = SafetensorError("Error while serializing: I/O error: No space left on device (os err")
    for error in (no_space(), hidden, of_ranks, rust, OSError(errno.EDQUOT, "")):
        assert disk_is_full(error), error
    others = {0: (ValueError("x"), [])}
    for error in (OSError(errno.EIO, ""), ValueError(), CheckpointException("read", others)):
        assert not disk_is_full(error), error


def test_the_reason_gets_to_all_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an error, others get no more than it says itself."""

    def write_data(*_: object) -> None:
        try:
            raise no_space()
        finally:
            raise RuntimeError("unexpected pos 704 vs 598")

    monkeypatch.setattr(_FileSystemWriter, "write_data", write_data)
    with pytest.raises(OSError) as error:
        CheckpointWriter(tmp_path).write_data(None, None)
    assert error.value.errno == errno.ENOSPC
