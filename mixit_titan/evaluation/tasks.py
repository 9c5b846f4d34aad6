"""Tasks of lm-eval, by name or from a folder of its YAML files, and a model's results on them."""

import contextlib
import difflib
import functools
import importlib.util
import io
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mixit_titan.errors import ConfigError

if TYPE_CHECKING:
    from lm_eval.api.group import Group
    from lm_eval.api.task import Task
    from lm_eval.tasks import TaskManager

    from mixit_titan.evaluation.harness import ScoringModel

_BOOTSTRAP = 1000  # resamples, for standard errors without a formula
_NEAR = 3
_FEWSHOT_SEED = 1234  # the harness's own


def check_installed() -> None:
    """Refuse, with the command that installs it, if lm-eval is missing."""
    if importlib.util.find_spec("lm_eval") is None:
        raise ConfigError(
            "tasks need EleutherAI's lm-evaluation-harness, which is not installed: pip install "
            "'mixit-titan[eval]' -c constraints.txt"
        )


@functools.lru_cache(maxsize=4)
def load_tasks(names: tuple[str, ...]) -> "tuple[Task | Group, ...]":
    """Load tasks with their data. A name is that of a task, group or tag of the harness, or a
    folder of YAML files that define tasks. A ConfigError if one is unknown or lacks its data."""
    check_installed()
    from lm_eval.tasks import TaskManager

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    folders = [name for name in names if Path(name).is_dir()]
    others = [name for name in names if name not in folders]
    own = TaskManager(include_path=[*folders], include_defaults=False)
    manager = own
    if not set(others) <= set(own.all_tasks):  # reading all tasks of the harness takes seconds
        manager = TaskManager(include_path=[*folders])
    found: list[Task | Group] = []
    for name in names:
        wanted = [name] if name in others else _in_folder(own, Path(name))
        for each in wanted:
            found += _load(manager, each)
    return tuple(found)


def _in_folder(manager: "TaskManager", folder: Path) -> list[str]:
    inside = [
        name
        for name in manager.all_subtasks
        if (path := manager.task_index[name].yaml_path) is not None
        and path.resolve().is_relative_to(folder.resolve())
    ]
    if not inside:
        raise ConfigError(f"{folder} has no YAML files that define lm-eval tasks (`task: NAME`)")
    return inside


def _load(manager: "TaskManager", name: str) -> "list[Task | Group]":
    if name not in manager.all_tasks:
        near = difflib.get_close_matches(name, manager.all_tasks, n=_NEAR)
        hint = f": did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise ConfigError(
            f"unknown task {name!r:.200}{hint} (`lm_eval ls tasks` lists the harness's tasks; a "
            "folder of YAML files also works)"
        )
    try:
        loaded = manager.load([name])
    except ConnectionError as error:
        raise ConfigError(
            f"the data of task {name!r} cannot be downloaded ({_first_line(error)}): try again "
            "with network access, or put it into the cache of Hugging Face's datasets"
        ) from None
    except Exception as error:  # whatever is wrong in its YAML file or its data
        reason = f"{type(error).__name__}: {_first_line(error)}"
        raise ConfigError(f"task {name!r} cannot be loaded ({reason})") from None
    return [*(loaded["groups"] or loaded["tasks"]).values()]


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def evaluate_tasks(
    model: "ScoringModel",
    tasks: "Sequence[Task | Group]",
    *,
    limit: int | None,
    errors: bool = True,
) -> dict[str, dict[str, Any]]:
    """Evaluate a model; returns task or group -> its result, with metrics under the harness's names
    (`acc`, `acc_stderr`, ...). `limit`: only the first examples of each task. Without `errors`, no
    standard errors are computed. All ranks get the same results."""
    from lm_eval.evaluator import evaluate
    from lm_eval.tasks import TaskManager

    loaded = TaskManager(include_defaults=False).load([*tasks])
    for task in loaded["tasks"].values():
        if task.get_config("num_fewshot") is None:
            task.set_config(key="num_fewshot", value=0)
        task.set_fewshot_seed(seed=_FEWSHOT_SEED)
    draws = _BOOTSTRAP if errors else 0
    os.environ["DISABLE_MULTIPROC"] = "1"  # it would start one process per core to resample
    # The harness prints progress bars and remarks of its own.
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            results = evaluate(model, loaded, limit=limit, log_samples=False, bootstrap_iters=draws)
        except ValueError as error:  # of the harness, such as for a task that runs code
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"lm-eval refuses this: {_first_line(error)}") from None
    return {name: _figures(name, results) for name in results["results"]}


def _figures(name: str, results: dict[str, Any]) -> dict[str, Any]:
    """The result of a task. A metric is `acc` if it has no filter, else `acc,FILTER`."""
    found = {}
    for key, value in results["results"][name].items():
        metric, _, kind = key.partition(",")
        if kind and isinstance(value, int | float):
            found[metric if kind == "none" else f"{metric},{kind}"] = float(value)
    counts = results.get("n-samples", {}).get(name, {})
    return {
        "metrics": found,
        "examples": counts.get("effective"),
        "of": counts.get("original"),
        "num_fewshot": results.get("n-shot", {}).get(name),
        "version": results.get("versions", {}).get(name),
    }
