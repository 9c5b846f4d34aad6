"""The training runs of one call: `mixit-titan train` with the 160m config on synthetic tokens, each
in its own folder. All have the same data and the same weights at initialization."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mixit_titan.config.shipped import shipped_configs
from mixit_titan.gpu_check.process import Ended, module, run
from mixit_titan.gpu_check.scale import CONFIG, STEPS
from mixit_titan.gpu_check.session import Session
from mixit_titan.runtime.checkpoint_files import problem_of
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.runtime.run_state import read_state

SECTION = "training"
_SECONDS = 1200  # per run, including compilation

Settings = Mapping[str, object]


def options(settings: Settings) -> list[str]:
    """Return settings as words of a command line."""
    return [word for key, value in settings.items() for word in (f"--{key}", str(value))]


class Runs:
    """Starts training runs and reads what they leave."""

    def __init__(self, session: Session) -> None:
        self.session, self.scale = session, session.scale

    def folder(self, name: str) -> Path:
        return self.session.folder(SECTION) / name

    def train(self, name: str, ranks: int, changed: Settings | None = None) -> Ended | None:
        """Train from beginning to end; None if an earlier call has done so."""
        if self.finished(name):
            return None
        shutil.rmtree(self.folder(name), ignore_errors=True)
        return self.start(name, ranks, changed or {})

    def start(self, name: str, ranks: int, changed: Settings, **watched: Any) -> Ended:
        """Start a run as the same command would: what is in the folder is resumed."""
        where = ["--nproc", str(ranks), "--dump_folder", str(self.folder(name))]
        settings = options({**self.scale.settings, **changed})
        command = module("mixit_titan", "train", shipped_configs()[CONFIG], *where, *settings)
        return run(command, self.log(name), _SECONDS, **watched)

    def log(self, name: str) -> Path:
        return self.session.folder(SECTION) / f"{name}.txt"

    def finished(self, name: str) -> bool:
        state = read_state(self.folder(name))
        return state is not None and (state.word, state.step) == ("finished", STEPS)

    def steps(self, name: str) -> list[dict[str, Any]]:
        """Return what the run logged for each step."""
        lines = read_metrics(self.folder(name) / "metrics.jsonl")
        return [line for line in lines if "loss" in line]

    def checkpoint(self, name: str, step: int) -> Path:
        return self.folder(name) / "checkpoint" / f"step-{step}"

    def incomplete(self, name: str, step: int) -> str | None:
        """Say what is wrong with a checkpoint; None if nothing is."""
        problem = problem_of(self.checkpoint(name, step))
        return None if problem is None else f"the checkpoint of step {step} is broken: {problem}"

    def remove_checkpoints(self) -> None:
        for folder in self.session.folder(SECTION).glob("*/checkpoint"):
            shutil.rmtree(folder)
