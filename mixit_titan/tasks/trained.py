"""The model of a finished run of a task, back from its folder."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from mixit_titan.errors import ConfigError
from mixit_titan.tasks.loop import read_result
from mixit_titan.tasks.models import build_model
from mixit_titan.tasks.settings import Run, Settings, field_names
from mixit_titan.tasks.task import task_class


def load_trained_task(folder: Path) -> tuple[Run, nn.Module]:
    """What was run, and the model at its trained weights, on the CPU. A ConfigError where it cannot
    be had."""
    result = read_result(folder)
    if result is None:
        raise ConfigError(f"{folder} has no result.json: name the folder of a finished task")
    run = _run(result, folder)
    weights = folder / "model.safetensors"
    try:
        tensors = load_file(weights)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{weights} cannot be read ({error}): run the task again") from None
    model = build_model(run)
    try:
        model.load_state_dict(tensors)
    except RuntimeError:
        raise ConfigError(f"{weights} does not fit the settings in result.json beside it") from None
    return run, model.requires_grad_(False).eval()


def _run(result: Any, folder: Path) -> Run:
    try:
        values = dict(result["settings"])
        cls = task_class(values.pop("task"))
        task = cls(**{key: values.pop(key) for key in field_names(cls) if key in values})
        freeze = values.pop("freeze")
        settings = Settings(freeze=None if freeze is None else tuple(freeze), **values)
        run = Run(task=task, settings=settings)
        run.check()
    except ConfigError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{folder / 'result.json'} is not the result of a task that this version of "
            f"mixit_titan knows ({error!r})"
        ) from None
    return run
