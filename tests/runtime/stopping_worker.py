"""Runs that are disturbed from within, one after the other, for `Forkserver.run_ranks`.

What a run did is left in its folder: also `rng_RANK`, what its last step drew, `failed_RANK`, the
sentence that it ended with, and `stopped`, its state before it was started again.
"""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist

from mixit_titan.config.run import load_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.errors import RunFailed
from mixit_titan.runtime import stop
from mixit_titan.runtime.train import train
from mixit_titan.runtime.trainer import MixitTrainer
from mixit_titan.runtime.validation import HeldOutValidator

from .conftest import SMALL, STEPS
from .worker import without_naps

VALIDATED = ["--validator.enable", "true", "--validator.freq", "7", "--validator.rows", "24"]
ASYNCHRONOUS = ["--checkpoint.async_mode", "async"]
EVERY_STEP = ["--checkpoint.interval", "1", "--checkpoint.keep_latest_k", "0"]


RUNS = 16


def main(ports: list[int], root: Path) -> None:
    with without_naps():
        _main(iter(ports), root)


def _main(ports: Iterator[int], root: Path) -> None:
    run = functools.partial(_run, ports)
    run(root / "unbroken")
    signal_a_child(root)
    with asked(MixitTrainer, "train_step", rank=1, step=9):
        run(root / "in_a_step")
    with asked(HeldOutValidator, "validate", rank=1, step=14, by=signal.SIGINT):
        run(root / "in_a_validation")
    with asked(MixitTrainer, "should_continue_training", rank=0, step=0):
        run(root / "while_loading")
    with asked(MixitTrainer, "train_step", rank=0, step=10, by=signal.SIGINT):
        run(root / "asynchronous", *ASYNCHRONOUS, "--checkpoint.interval", "3")
    for name in ("in_a_step", "in_a_validation", "while_loading", "asynchronous"):
        if os.environ["RANK"] == "0":
            shutil.copy(root / name / "state", root / name / "stopped")
        run(root / name)
    run(root / "broken", "--checkpoint.interval", "5")
    if os.environ["RANK"] == "0":
        break_checkpoint(root / "broken" / "checkpoint" / f"step-{STEPS}")
    run(root / "broken")
    run(root / "damaged", "--checkpoint.interval", "5")
    if os.environ["RANK"] == "0":
        damage(root / "damaged" / "checkpoint" / f"step-{STEPS}")
    run(root / "damaged")
    run(root / "not_finite", "--optimizer.lr", "1e30", *EVERY_STEP)
    for name, mode in (("small_disk", []), ("small_disk_asynchronous", ASYNCHRONOUS)):
        if (root / name).exists():
            run(root / name, *EVERY_STEP, *mode)


def signal_a_child(root: Path) -> None:
    """A signal to a job step reaches all its processes, also those that a rank has started."""
    with subprocess.Popen(["sleep", "300"]) as child:
        child.send_signal(signal.SIGUSR1)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1)
        (root / f"child_{os.environ['RANK']}").write_text(str(child.poll()))
        child.kill()


def break_checkpoint(folder: Path) -> None:
    """Cut short, and as if this rank had died within the next save."""
    file = next(folder.glob("*.distcp"))
    shutil.copytree(folder, folder.with_name(".unfinished-25"))
    file.write_bytes(file.read_bytes()[:-100])


def damage(folder: Path) -> None:
    """Other bytes, as many of them, in what rank 1 has saved. The checkpoint before it is of a
    version that wrote no checksums."""
    file = folder / "__1_0.distcp"
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 20] = bytes(byte ^ 0xFF for byte in content[middle : middle + 20])
    file.write_bytes(content)
    (folder.with_name("step-15") / "checksums.json").unlink()


def _run(ports: Iterator[int], folder: Path, *overrides: str) -> None:
    stop._asked.clear()
    stop._interrupted.clear()
    os.environ["MASTER_PORT"] = str(next(ports))
    words = [*SMALL, *VALIDATED, "--dump_folder", str(folder), *overrides]
    config = str(shipped_configs()["debug_mixit"])
    train_step = MixitTrainer.train_step

    def draw_too(self: MixitTrainer, data: object) -> None:
        train_step(self, data)
        drawn = torch.rand(1).item()
        if self.step == STEPS:
            (folder / f"rng_{dist.get_rank()}").write_text(str(drawn))

    with mock.patch.object(MixitTrainer, "train_step", draw_too):
        try:
            train(load_run(config, words, world_size=int(os.environ["WORLD_SIZE"])))
        except RunFailed as error:
            (folder / f"failed_{dist.get_rank()}").write_text(str(error))
            dist.destroy_process_group()


@contextlib.contextmanager
def asked(
    owner: type, name: str, *, rank: int, step: int, by: signal.Signals = signal.SIGUSR1
) -> Iterator[None]:
    """One rank gets a signal at a step, as the method begins."""
    method = getattr(owner, name)

    def signalled(self: MixitTrainer | HeldOutValidator, *arguments: object) -> object:
        now = self.step if isinstance(self, MixitTrainer) else arguments[1]
        if dist.get_rank() == rank and now == step:
            os.kill(os.getpid(), by)
            while not stop._asked.is_set():
                time.sleep(0.01)
        return method(self, *arguments)

    with mock.patch.object(owner, name, signalled):
        yield
