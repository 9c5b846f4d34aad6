"""The checkpoint of a run: all that the next step depends on, in one file that is whole or not
there.

Nothing random is in it. Batches are a function of (seed, step), the learning rate is one of the
step, and the model draws nothing.
"""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mixit_titan.errors import ConfigError
from mixit_titan.files import replace_file
from mixit_titan.model.identity import differences

FILE = "checkpoint.pt"


def save_state(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    step: int,
    seconds: float,
    described: dict[str, Any],
) -> None:
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": step,
        "seconds": seconds,
        "described": described,
    }
    replace_file(folder / FILE, lambda part: torch.save(state, part))


def read_state(folder: Path) -> dict[str, Any] | None:
    path = folder / FILE
    if not path.exists():
        return None
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except (RuntimeError, pickle.UnpicklingError, EOFError, zipfile.BadZipFile):
        raise ConfigError(f"{path} is not a whole checkpoint: remove it to start again") from None


def load_state(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, described: dict[str, Any]
) -> tuple[int, float]:
    """Go on where the run in `folder` stopped: its step and seconds, (0, 0.0) for a new run."""
    state = read_state(folder)
    if state is None:
        return 0, 0.0
    check_same_run(folder, state["described"], described)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"], state["seconds"]


def check_same_run(folder: Path, saved: dict[str, Any], ours: dict[str, Any]) -> None:
    """Refuse to mix two runs in one folder."""
    different = differences(_plain(saved), _plain(ours), ignore=set())
    if different:
        raise ConfigError(
            f"{folder} holds another run: {'; '.join(different)}. Choose another --out, "
            "or the settings of that run"
        )


def _plain(described: dict[str, Any]) -> dict[str, Any]:
    """As JSON would give it back."""
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in described.items()
    }
