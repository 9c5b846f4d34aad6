"""`mixit-titan task NAME`: train and test on one task, or print examples of it."""

import dataclasses
import shlex
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal

import numpy as np
import torch
import tyro
from rich.console import Console

from mixit_titan.device import check_device
from mixit_titan.errors import ConfigError
from mixit_titan.fields import Group
from mixit_titan.files import json_text
from mixit_titan.model.stack import as_folder
from mixit_titan.options import typed
from mixit_titan.ranges import Range
from mixit_titan.tasks.examples import Listed, Stream
from mixit_titan.tasks.loop import extra_figures, train
from mixit_titan.tasks.options import parse, preset_run, typed_settings, word_after
from mixit_titan.tasks.presets import PRESETS
from mixit_titan.tasks.progress import Reporter
from mixit_titan.tasks.settings import Run, T
from mixit_titan.tasks.stopping import Stopped
from mixit_titan.tasks.task import TASKS, task_class, task_name

USAGE = f"""usage: mixit-titan task NAME [--variant V] [--preset cpu|paper] [options]

Train and test a variant on one small task, on a CPU or a GPU.

Example: mixit-titan task retrieval --variant frozen_qk --out runs/retrieval
Example: mixit-titan task addition --show 3

NAME is one of
{textwrap.fill(", ".join(TASKS), 76, initial_indent="    ", subsequent_indent="    ")}
or MODULE:CLASS, a task of your own (docs/tasks.md, Adding a task).
Options and defaults of a task: mixit-titan task retrieval --help"""


@dataclass(frozen=True, kw_only=True)
class TaskArguments(Generic[T]):
    """Train and test a variant on one small task, on a CPU or a GPU.

    Example: mixit-titan task retrieval --variant frozen_qk --out runs/retrieval
    """

    run: tyro.conf.OmitArgPrefixes[Run[T]]
    preset: Annotated[Literal["cpu", "paper"], Group("the run")] = "cpu"
    """Preset that all other defaults come from: sizes for two CPU cores, or those of the paper."""
    out: Path | None = None
    """Folder of the run (default: runs/tasks/NAME_VARIANT_HASH)."""
    show: Annotated[int | None, Range(least=1, most=100_000)] = None
    """Print the first N training examples, or as many as there are, instead of training."""
    json: bool = False
    """Print the result, or the examples, as JSON."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on; auto is the GPU if there is one."""
    wandb: bool = False
    """Also log to wandb, offline if no account is set up."""


def task_command(arguments: list[str]) -> None:
    """Read the command line, then train and test, or print examples."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        raise SystemExit(0)
    name, *words = arguments
    cls = task_class(name)
    preset = word_after("--preset", words) or next(iter(PRESETS))
    default = TaskArguments(run=preset_run(name, preset, words), preset=preset)
    args = parse(TaskArguments[cls], default, name, words)
    args = dataclasses.replace(args, run=args.run.named())
    with typed(typed_settings()):
        args.run.check()
        if args.show is not None:
            _show(args)
            return
        with _command_said(arguments):
            result = run_task(
                args.run, args.out, device=args.device, wandb=args.wandb, quiet=args.json
            )
    if args.json:
        print(json_text(result))
    else:
        print(_text(result))
        _say_next(args)


def _say_next(args: TaskArguments) -> None:
    """Print where the run is, and commands that go further with it."""
    folder, name = args.out or run_folder(args.run), task_name(args.run.task)
    print(f"The run is in {folder}. Next, for example:")
    if args.run.settings.layer_stack() is not None:
        own = ["--task", name] if ":" in name else []
        print(f"  {shlex.join(['mixit-titan', 'analyze', 'attention', str(folder), *own])}")
    print(f"  {shlex.join(['mixit-titan', 'sweep', name, '--seeds', '3'])}")


@contextmanager
def _command_said(words: list[str]) -> Iterator[None]:
    """Print the command that resumes a run, if the run was asked to stop."""
    try:
        yield
    except Stopped as stopped:
        print(f"Stopped after step {stopped.step}: saved. Resume it with", file=sys.stderr)
        print(f"  {shlex.join(['mixit-titan', 'task', *words])}", file=sys.stderr)
        raise


def run_task(
    run: Run, out: Path | None, *, device: str, wandb: bool, quiet: bool
) -> dict[str, Any]:
    """Train and test a run in `out` (default: a folder of its own), and return its result."""
    described, name = run.described(), _name(run)
    folder = out or run_folder(run)
    console = Console(stderr=True, quiet=quiet)
    reporter = Reporter(
        name, run.settings.steps, console=console, wandb_settings=described if wandb else None
    )
    kept = (folder / "result.json").exists()
    with reporter:
        result = train(run, folder, device=find_device(device), reporter=reporter)
    if not kept and run.settings.warmup > run.settings.steps:
        cut = f"--warmup {run.settings.warmup} was cut to the {run.settings.steps} steps of the run"
        console.print(cut, soft_wrap=True)
    where = f"{folder} already has this finished run: kept" if kept else f"wrote {folder}"
    console.print(where, soft_wrap=True)
    return result


def run_folder(run: Run) -> Path:
    """Return the folder that a run gets without --out."""
    # Parts frozen in place of a variant's own only enter the hash, for compatibility.
    named = run.settings.stack is None and run.settings.mixer is None
    short = f"{_task(run)}_{run.settings.variant}" if named else _name(run)
    return Path("runs/tasks") / f"{short}_{run.hash}"


def _name(run: Run) -> str:
    return f"{_task(run)}_{as_folder(run.settings.name)}"


def _task(run: Run) -> str:
    return task_name(run.task).replace(":", "-")  # no colons in paths


def find_device(name: str) -> torch.device:
    """Return the device of a name; `auto` is the GPU if there is one. A ConfigError if torch cannot
    use it."""
    if name == "auto":
        check_device()
        name = "cuda" if torch.cuda.is_available() else "cpu"
    elif name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: this machine has no GPU that torch can use")
    return torch.device(name)


def _show(args: TaskArguments) -> None:
    task, settings = args.run.task, args.run.settings
    few = min(settings.test, 1)  # not shown, and a small task may not have more
    stream, _ = task.split(seed=settings.seed, train=settings.train, test=few)
    for tokens_L, labels_L in _first(stream, args.show, settings.batch):
        question, answer = task.write(tokens_L, labels_L)
        if args.json:
            print(json_text({"question": question, "answer": answer}))
        else:
            print(f"{question} -> {answer}")


def _first(stream: Stream, count: int, batch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the first examples of a run, batch by batch, so that a smaller count gives the first
    ones of a larger count."""
    if isinstance(stream, Listed):
        count = min(count, len(stream.examples))
    for step, before in enumerate(range(0, count, batch)):
        examples = stream.batch(step, batch).take(slice(count - before))
        yield from zip(examples.tokens, examples.labels, strict=True)


def _text(result: dict[str, Any]) -> str:
    lines = [
        f"{result['task']}, {result['variant']}: accuracy {result['accuracy']:.2%} "
        f"(complete examples {result['exact']:.2%}), test loss {result['loss']:.4f}",
        f"  {result['trainable_params']:,} of {result['params']:,} parameters trained, "
        f"{result['steps']:,} steps, {result['seconds']:,.0f} s",
    ]
    for name, value in extra_figures(result).items():
        lines.append(f"  {value:.3f} {name.replace('_', ' ')}")
    for name, values in result["slices"].items():
        by = "  ".join(f"{value}: {accuracy:.1%}" for value, accuracy in values.items())
        lines.append(f"  by {name}: {by}")
    return "\n".join(lines)
