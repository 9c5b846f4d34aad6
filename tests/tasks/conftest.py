import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from mixit_titan.tasks.loop import train
from mixit_titan.tasks.options import parse, preset_run
from mixit_titan.tasks.progress import Reporter
from mixit_titan.tasks.settings import Run
from mixit_titan.tasks.task import task_class

TINY = "--width 16 --layers 1 --heads 2 --batch 8 --steps 20 --eval-every 5 --warmup 4"


def make_run(task: str, words: str = "") -> Run:
    """Return a run of a task at a size that takes a moment."""
    all_words = shlex.split(f"{TINY} {words}")
    return parse(Run[task_class(task)], preset_run(task, "cpu", all_words), task, all_words)


@pytest.fixture
def fit(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return a function that trains a run into a folder of the test's own."""

    def fit(run: Run, folder: str = "run") -> dict[str, Any]:
        reporter = Reporter("", 1, console=Console(quiet=True), wandb_settings=None)
        return train(run, tmp_path / folder, device=torch.device("cpu"), reporter=reporter)

    return fit
