"""`mixit-titan task NAME`: train and test on one task, or show what its examples look like."""

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

Train and test a variant on one small task, on a GPU or none.

Example: mixit-titan task retrieval --variant frozen_qk --out runs/retrieval
Example: mixit-titan task addition --show 3

NAME is one of
{textwrap.fill(", ".join(TASKS), 76, initial_indent="    ", subsequent_indent="    ")}
or MODULE:CLASS, a task of your own (docs/tasks.md, Adding a task).
Each task shows its options and defaults: mixit-titan task retrieval --help"""


@dataclass(frozen=True, kw_only=True)
class TaskArguments(Generic[T]):
    """Train and test a variant on one task.

    Example: mixit-titan task retrieval --variant frozen_qk --out runs/retrieval
    """

    run: tyro.conf.OmitArgPrefixes[Run[T]]
    preset: Literal["cpu", "paper"] = "cpu"
    """Where all other values come from: sizes for two cores, or those of the paper."""
    out: Path | None = None
    """The run's folder (default: runs/tasks/NAME_VARIANT_HASH)."""
    show: Annotated[int | None, Range(least=1, most=100_000)] = None
    """Print the first so many training examples, or all that there are, instead of training."""
    json: bool = False
    """Print JSON."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    wandb: bool = False
    """Log to wandb too; offline where there is no account."""


def task_command(arguments: list[str]) -> None:
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
    print(json_text(result) if args.json else _text(result))


@contextmanager
def _command_said(words: list[str]) -> Iterator[None]:
    """At the end of a run that was asked to stop, the command that resumes it."""
    try:
        yield
    except Stopped as stopped:
        print(f"Stopped after step {stopped.step}: saved. Resume it with", file=sys.stderr)
        print(f"  {shlex.join(['mixit-titan', 'task', *words])}", file=sys.stderr)
        raise


def run_task(
    run: Run, out: Path | None, *, device: str, wandb: bool, quiet: bool
) -> dict[str, Any]:
    described = run.described()
    task = task_name(run.task).replace(":", "-")  # no colons in paths
    name = f"{task}_{as_folder(run.settings.name)}"
    # Of a variant, what is frozen instead is in the hash alone, as it has always been.
    named = run.settings.stack is None and run.settings.mixer is None
    short = f"{task}_{run.settings.variant}" if named else name
    folder = out or Path("runs/tasks") / f"{short}_{run.hash}"
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
    where = f"{folder} has this run, finished: kept" if kept else f"wrote {folder}"
    console.print(where, soft_wrap=True)
    return result


def find_device(name: str) -> torch.device:
    """`auto`: the GPU if there is one. A ConfigError where torch cannot use it."""
    if name == "auto":
        check_device()
        name = "cuda" if torch.cuda.is_available() else "cpu"
    elif name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: this machine has no GPU that torch can use")
    return torch.device(name)


def _show(args: TaskArguments) -> None:
    task, settings = args.run.task, args.run.settings
    few = min(settings.test, 1)  # none is shown, and a small task has no more
    stream, _ = task.split(seed=settings.seed, train=settings.train, test=few)
    for tokens_L, labels_L in _first(stream, args.show, settings.batch):
        question, answer = task.write(tokens_L, labels_L)
        if args.json:
            print(json_text({"question": question, "answer": answer}))
        else:
            print(f"{question} -> {answer}")


def _first(stream: Stream, count: int, batch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The examples that a run begins with: batch by batch, so that fewer are the first of more."""
    if isinstance(stream, Listed):
        count = min(count, len(stream.examples))
    for step, before in enumerate(range(0, count, batch)):
        examples = stream.batch(step, batch).take(slice(count - before))
        yield from zip(examples.tokens, examples.labels, strict=True)


def _text(result: dict[str, Any]) -> str:
    lines = [
        f"{result['task']}, {result['variant']}: accuracy {result['accuracy']:.2%} "
        f"(whole examples {result['exact']:.2%}), test loss {result['loss']:.4f}",
        f"  {result['trainable_params']:,} of {result['params']:,} parameters trained, "
        f"{result['steps']:,} steps, {result['seconds']:,.0f} s",
    ]
    for name, value in extra_figures(result).items():
        lines.append(f"  {value:.3f} {name.replace('_', ' ')}")
    for name, values in result["slices"].items():
        by = "  ".join(f"{value}: {accuracy:.1%}" for value, accuracy in values.items())
        lines.append(f"  by {name}: {by}")
    return "\n".join(lines)
