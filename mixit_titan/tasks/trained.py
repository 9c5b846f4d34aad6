"""Loads the model of a finished task run from its folder."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from mixit_titan.errors import ConfigError
from mixit_titan.json_form import check_fields
from mixit_titan.reading import check_kinds
from mixit_titan.tasks.loop import read_result
from mixit_titan.tasks.models import build_model
from mixit_titan.tasks.options import field_names
from mixit_titan.tasks.settings import Run, Settings
from mixit_titan.tasks.task import Task, task_class, task_name


def load_trained_task(folder: Path, *, task: str | None = None) -> tuple[Run, nn.Module]:
    """Return the run and its trained model, on the CPU; a ConfigError if they cannot be loaded. A
    task from outside of the package is imported only if the user names it, as `task`."""
    result = read_result(folder)
    if result is None:
        raise ConfigError(f"{folder} has no result.json: name the folder of a finished task")
    run = run_of(result, folder, task)
    weights = folder / "model.safetensors"
    check_kinds(folder, files=(weights.name,))
    try:
        tensors = load_file(weights)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{weights} cannot be read ({error}): run the task again") from None
    try:
        _check_sizes(run, tensors)
        model = build_model(run)
        model.load_state_dict(tensors)
    except (RuntimeError, MemoryError):
        raise ConfigError(f"{weights} does not fit the settings in result.json beside it") from None
    return run, model.requires_grad_(False).eval()


def run_of(result: Any, folder: Path, named: str | None = None) -> Run:
    """Return the run that the result.json of a folder describes; `named` is the user's own word for
    its task."""
    try:
        values = {
            key: tuple(value) if isinstance(value, list) else value  # JSON has no tuples
            for key, value in result["settings"].items()
        }
        saved = values.pop("task")
        cls = _task_class(saved, folder, named)
        task = cls(**{key: values.pop(key) for key in field_names(cls) if key in values})
        if task_name(task) != saved:
            raise ConfigError(f"--task is {named!r}, and {folder} holds the task {saved!r}")
        run = Run(task=task, settings=Settings(**values))
        for part in (task, run.settings):
            check_fields(vars(part), type(part))
        run.check()
    except ConfigError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{folder / 'result.json'} is not the result of a task that this version of "
            f"mixit_titan knows ({error!r:.200})"
        ) from None
    return run


def _check_sizes(run: Run, tensors: dict[str, torch.Tensor]) -> None:
    """Check the sizes first, since a model larger than its weights may be larger than the
    memory."""
    largest = max((size for tensor in tensors.values() for size in tensor.shape), default=0)
    sizes = (run.settings.width, run.settings.heads, run.task.token_count)
    if run.settings.layers > len(tensors) or max(sizes) > largest:
        raise RuntimeError


def _task_class(saved: str, folder: Path, named: str | None) -> type[Task]:
    """Return the class of the task that a result.json names. An import path in a file may come from
    a stranger, so only the user's own word imports it."""
    if named is None and ":" in saved:
        raise ConfigError(
            f"{folder} holds the task {saved!r}, which is not part of mixit_titan: if you trust "
            "that code, name it with --task MODULE:CLASS"
        )
    return task_class(saved if named is None else named)
