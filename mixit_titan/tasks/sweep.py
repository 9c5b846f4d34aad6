"""`mixit-titan sweep TASK`: a grid of settings for some variants and seeds, as one command.

Every point is a run of the task in a process of its own, in a folder that is named by a hash of its
settings: a finished one is kept, any other goes on from its checkpoint or starts again.
"""

import itertools
import multiprocessing
import os
import shutil
import time
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from rich.console import Console

from mixit_titan.errors import ConfigError
from mixit_titan.files import make_folder
from mixit_titan.model.variants import VARIANTS
from mixit_titan.signals import terminated_as_interrupted
from mixit_titan.tasks.checkpoint import read_state
from mixit_titan.tasks.command import run_task
from mixit_titan.tasks.loop import extra_figures, read_result
from mixit_titan.tasks.models import model_config
from mixit_titan.tasks.options import parse, preset_run
from mixit_titan.tasks.settings import Run
from mixit_titan.tasks.sweep_report import write_report
from mixit_titan.tasks.task import task_class


@dataclass(frozen=True, kw_only=True)
class SweepArguments:
    """Train a grid of settings, compare the variants, draw them.

    Example: mixit-titan sweep retrieval --variants mixit frozen_qk --grid pairs=2,4,8 --seeds 3
    """

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """addition, retrieval, hop, ...: the tasks of `mixit-titan task`."""
    variants: tuple[str, ...] = tuple(VARIANTS)
    grid: tuple[str, ...] = ()
    """key=value,value ...: any options of the task. The first key is the x axis of the picture."""
    fixed: Annotated[tuple[str, ...], tyro.conf.arg(name="set")] = ()
    """key=value ...: options that differ from the preset in all points."""
    preset: Literal["cpu", "paper"] = "cpu"
    seeds: int = 1
    """Every point is trained with the seeds 0, 1, ..."""
    jobs: int = 1
    """Points that are trained at a time."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    out: Path = Path("runs/sweep")


@dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    run: Run
    axes: dict[str, str]
    """Its place in the grid, as the user wrote it."""

    def folder(self, out: Path) -> Path:
        return out / self.run.hash


def sweep_command(arguments: list[str]) -> None:
    args = tyro.cli(SweepArguments, prog="mixit-titan sweep", args=arguments)
    task_class(args.task)
    for key in ("seeds", "jobs"):
        if getattr(args, key) < 1:
            raise ConfigError(f"--{key} is {getattr(args, key)}: it must be at least 1")
    points = grid_points(args)
    console = Console(stderr=True)
    make_folder(args.out)
    with terminated_as_interrupted():
        failed = _run_all(points, args, console)
    rows = [_row(point, args) for point in points if point not in failed]
    if rows:
        write_report(args.task, list(_grid(args.grid)), rows, args.out, Console())
    if failed:
        names = ", ".join(str(point.folder(args.out) / "log.txt") for point in failed)
        raise ConfigError(f"{len(failed)} of {len(points)} points failed: see {names}")


def grid_points(args: SweepArguments) -> list[Point]:
    """All combinations, each one checked before the first is trained."""
    grid, fixed = _grid(args.grid), _grid(args.fixed)
    for key in ("variant", "seed"):
        if key in grid | fixed:
            raise ConfigError(f"{key!r} is not for --grid and --set: use --{key}s")
    base = [word for key, values in fixed.items() for word in _words(key, values[0])]
    points = {}
    for variant in args.variants:
        for values in itertools.product(*grid.values()):
            axes = dict(zip(grid, values, strict=True))
            words = base + [word for item in axes.items() for word in _words(*item)]
            for seed in range(args.seeds):
                all_words = ["--variant", variant, *words, "--seed", str(seed)]
                default = preset_run(args.task, args.preset, all_words)
                run = parse(Run[task_class(args.task)], default, args.task, all_words)
                run.check()
                model_config(run)
                points[run.hash] = Point(run, axes)
    return list(points.values())


def _grid(words: tuple[str, ...]) -> dict[str, list[str]]:
    grid = {}
    for word in words:
        key, equals, values = word.partition("=")
        if not key or not equals or not all(values.split(",")):
            raise ConfigError(f"{word!r} is no part of a grid: write key=value,value")
        grid[key.replace("-", "_")] = values.split(",")
    return grid


def _words(key: str, value: str) -> list[str]:
    flag = key.replace("_", "-")
    if value in ("true", "false"):
        return [f"--{'' if value == 'true' else 'no-'}{flag}"]
    return [f"--{flag}", value]


def _run_all(points: list[Point], args: SweepArguments, console: Console) -> list[Point]:
    """Train what is not finished, `jobs` at a time; returns the points that failed."""
    waiting = [point for point in points if not is_finished(point.folder(args.out))]
    console.print(f"{len(points)} points, {len(points) - len(waiting)} of them done before")
    running: dict[str, tuple[Point, BaseProcess]] = {}
    failed, done = [], len(points) - len(waiting)
    try:
        while waiting or running:
            while waiting and len(running) < args.jobs:
                point = waiting.pop(0)
                running[point.run.hash] = (point, _start(point, args))
            for key, (point, process) in list(running.items()):
                if not process.is_alive():
                    del running[key]
                    done += 1
                    if process.exitcode != 0 or not is_finished(point.folder(args.out)):
                        failed.append(point)
                    _say(console, point, args, f"{done} of {len(points)}")
            time.sleep(0.2)
    finally:
        for _, process in running.values():
            process.terminate()  # each has its last checkpoint
            process.join()
    return failed


def _start(point: Point, args: SweepArguments) -> BaseProcess:
    """Processes are forked from one that has imported torchtitan, which takes seconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mixit_titan.tasks.command"])
    threads = max(1, (os.cpu_count() or 1) // args.jobs)
    folder = point.folder(args.out)
    process = context.Process(target=_train, args=(point.run, folder, args.device, threads))
    process.start()
    return process


def _train(run: Run, folder: Path, device: str, threads: int) -> None:
    """One point, in a process of its own; what it prints goes to its folder."""
    folder.mkdir(exist_ok=True)
    with (folder / "log.txt").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(threads)
    run_task(run, folder, device=device, wandb=False, quiet=False)


def is_finished(folder: Path) -> bool:
    """Whether the folder of a point holds its result. A broken folder is emptied."""
    try:
        result, _ = read_result(folder), read_state(folder)
        whole = result is None or {"accuracy", "settings"} <= result.keys()
    except ConfigError:
        whole = False
    if not whole:
        shutil.rmtree(folder)
        return False
    return result is not None


def _row(point: Point, args: SweepArguments) -> dict[str, Any]:
    result = read_result(point.folder(args.out))
    keys = ("accuracy", "exact", "loss", "trainable_params", "steps", "seconds")
    return {
        "folder": point.run.hash,
        "variant": result["variant"],
        "seed": result["settings"]["seed"],
        "axes": point.axes,
        **{key: result[key] for key in keys},
        **extra_figures(result),
    }


def _say(console: Console, point: Point, args: SweepArguments, count: str) -> None:
    result = read_result(point.folder(args.out))
    place = " ".join(f"{key}={value}" for key, value in point.axes.items())
    outcome = f"accuracy {result['accuracy']:.2%}" if result else "failed"
    settings = point.run.settings
    console.print(
        f"{count}: {settings.variant} {place} seed {settings.seed}: {outcome}", soft_wrap=True
    )
