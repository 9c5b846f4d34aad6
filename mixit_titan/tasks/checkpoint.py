"""The checkpoint of a run: everything that the next step depends on, in one file that is either
complete or absent. The previous one is kept in case the file is damaged later.

It holds nothing random: batches are a function of (seed, step), the learning rate is a function of
the step, and the model draws nothing.
"""

import math
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mixit_titan.errors import ConfigError
from mixit_titan.files import replace_file
from mixit_titan.log import logger
from mixit_titan.model.identity import differences
from mixit_titan.reading import regular, set_aside
from mixit_titan.runtime.tensor_reader import is_as_saved

FILE, BEFORE = "checkpoint.pt", "checkpoint.before.pt"


def save_state(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    step: int,
    seconds: float,
    described: dict[str, Any],
) -> None:
    """Write a checkpoint, and keep the previous one beside it."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": step,
        "seconds": seconds,
        "described": described,
    }

    def write(part: Path) -> None:
        with part.open("wb") as file:  # given a path, torch would hide why it cannot write
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())  # before the previous one gives up its name
        if (folder / FILE).exists():
            (folder / FILE).replace(folder / BEFORE)

    replace_file(folder / FILE, write)


def load_state(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, described: dict[str, Any]
) -> tuple[int, float]:
    """Resume where the run in `folder` stopped, and return its step and seconds: (0, 0.0) for a new
    run."""
    for path in (folder / FILE, folder / BEFORE):
        state = _read(path)
        if state is None:
            continue
        try:
            check_same_run(folder, state["described"], described)
            model.load_state_dict(state["model"])
            _load_optimizer(optimizer, state["optimizer"])
            step, seconds = state["step"], state["seconds"]
            if type(step) is not int or not 0 <= step <= described["steps"]:
                raise ValueError("the step")
            if not isinstance(seconds, int | float) or not math.isfinite(seconds):
                raise ValueError("the seconds")
            return step, float(seconds)
        except ConfigError:
            raise
        except Exception as error:  # whatever a file with valid checksums holds
            raise ConfigError(
                f"{path} does not belong to this run: remove it to start over"
            ) from error
    return 0, 0.0


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints once a result takes their place."""
    for name in (FILE, BEFORE):
        (folder / name).unlink(missing_ok=True)


def _read(path: Path) -> Any:
    """Return None if there is no checkpoint, or if it is damaged; a damaged one is set aside."""
    if not path.exists():
        return None
    with open(path, "rb", opener=regular) as file:
        if not is_as_saved(file):
            aside = set_aside(path)
            logger.warning(f"{path} is damaged and has been renamed to {aside}")
            return None
        file.seek(0)
        try:
            return torch.load(file, weights_only=True, map_location="cpu")
        except Exception as error:  # whatever unpickling a broken file raises
            raise ConfigError(f"{path} is not a checkpoint: remove it to start over") from error


def _load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Check values and shapes, because torch accepts any and fails at the first step."""
    ours = [_but_for_the_rate(group) for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    if [_but_for_the_rate(group) for group in optimizer.param_groups] != ours:
        raise ValueError("the settings of the optimizer")
    for param, values in optimizer.state.items():
        if any(value.shape not in (param.shape, ()) for value in values.values()):
            raise ValueError("the shapes in the optimizer")


def _but_for_the_rate(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in ("lr", "params")}


def check_same_run(folder: Path, saved: dict[str, Any], ours: dict[str, Any]) -> None:
    """Refuse to mix two runs in one folder."""
    different = differences(_plain(saved), _plain(ours), ignore=set())
    if different:
        raise ConfigError(
            f"{folder} holds another run: {'; '.join(different)}. Choose another --out, "
            "or the settings of that run"
        )


def _plain(described: dict[str, Any]) -> dict[str, Any]:
    """Return a description as JSON would give it back."""
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in described.items()
    }
