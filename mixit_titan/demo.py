"""Trains all five variants on this machine, one after the other, and compares them.

Each run is a `mixit-titan train` of its own on train_configs/debug_VARIANT.toml, longer than the
file says. A run that was interrupted goes on from its last checkpoint; a finished one is kept.
"""

import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from mixit_titan.config.shipped import shipped_configs
from mixit_titan.errors import ConfigError
from mixit_titan.files import write_json, write_text
from mixit_titan.model.accounting import count
from mixit_titan.model.shapes import FLAVORS
from mixit_titan.model.variants import VARIANTS
from mixit_titan.plotting import COLORS, save_figure
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.signals import terminated_as_interrupted
from mixit_titan.tables import markdown_table, screen_table


@dataclass
class DemoArguments:
    """Train all five variants on this machine and compare them.

    Example: mixit-titan demo --out runs/demo --steps 300
    """

    out: Path = Path("runs/demo")
    """Folder for the runs and their comparison."""
    steps: int = 300
    """Training steps of each variant."""


def run_demo(args: DemoArguments) -> None:
    console = Console()
    if args.steps < 10:
        raise ConfigError(f"--steps is {args.steps}: a comparison needs at least 10")
    progress = Progress(
        TextColumn("{task.description:<11}"),
        *Progress.get_default_columns()[1:3],
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
    )
    with progress, terminated_as_interrupted():
        for variant in VARIANTS:
            _train(variant, args, progress)
    rows = [_summary(variant, args) for variant in VARIANTS]
    for row in rows:
        row["ratio"] = row["tokens_per_s"] / rows[0]["tokens_per_s"]
    _write(args, rows)
    console.print(_table(rows))
    console.print(
        "tokens/s: one run after the other on a machine that may be doing other things too."
    )
    for name in ("demo.json", "demo.md", "demo.png"):
        console.print(f"wrote {args.out / name}")


def _folder(variant: str, args: DemoArguments) -> Path:
    return args.out / f"{variant}_{args.steps}"


def _train(variant: str, args: DemoArguments, progress: Progress) -> None:
    """Run one variant in a process of its own, its log in the run's folder, its steps on screen."""
    folder = _folder(variant, args)
    metrics = folder / "metrics.jsonl"
    if (folder / "checkpoint" / f"step-{args.steps}").exists() and not _finished(metrics, args):
        shutil.rmtree(folder)  # stopped after its last step and before its last validation
    task = progress.add_task(variant, total=args.steps, note="")
    if _finished(metrics, args):
        progress.update(task, completed=args.steps, note="done before")
        return
    command = [
        *(sys.executable, "-m", "mixit_titan", "train", str(shipped_configs()[f"debug_{variant}"])),
        *("--nproc", "1", "--dump_folder", str(folder)),
        *("--training.steps", str(args.steps), "--training.global_batch_size", "16"),
        *("--lr_scheduler.warmup_steps", str(min(40, args.steps))),
        *("--validator.freq", str(args.steps), "--validator.rows", "-1"),
        *("--checkpoint.interval", "100"),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "train.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                _show(progress, task, metrics)
                time.sleep(0.5)
        except KeyboardInterrupt:
            process.terminate()  # it saves; a terminal sent Ctrl-C to it as well
            process.wait()
            raise
    if process.returncode != 0 or not _finished(metrics, args):
        raise ConfigError(f"training {variant} ended with code {process.returncode}: see {log}")
    note = _show(progress, task, metrics)
    if not progress.console.is_terminal:  # a bar is drawn on terminals only
        progress.console.print(f"{variant}: {note}")


def _show(progress: Progress, task: Any, metrics: Path) -> str:
    """Bring the bar up to date; returns the note beside it."""
    steps = [line for line in read_metrics(metrics) if "loss" in line]
    if not steps:
        return ""
    last = steps[-1]
    note = f"training loss {last['loss']:.3f}  {last['tokens_per_s']:,.0f} tokens/s"
    progress.update(task, completed=last["step"], note=note)
    return note


def _finished(metrics: Path, args: DemoArguments) -> bool:
    return any(
        line["step"] == args.steps and "validation_loss" in line for line in read_metrics(metrics)
    )


def _summary(variant: str, args: DemoArguments) -> dict[str, Any]:

    lines = read_metrics(_folder(variant, args) / "metrics.jsonl")
    training = [line for line in lines if "loss" in line]
    validation = [line for line in lines if "validation_loss" in line][-1]
    counts = count(FLAVORS["debug"], VARIANTS[variant])
    return {
        "variant": variant,
        "steps": args.steps,
        "validation_loss": validation["validation_loss"],
        "perplexity": validation["perplexity"],
        "trainable_params": counts.trainable,
        "share_trained": counts.trainable / (counts.trainable + counts.frozen),
        "tokens_per_s": statistics.median(line["tokens_per_s"] for line in training[1:]),
        "training_loss": [[line["step"], line["loss"]] for line in training],
    }


COLUMNS = ("variant", "validation loss", "perplexity", "trained", "tokens/s", "to standard")


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["variant"],
        f"{row['validation_loss']:.3f}",
        f"{row['perplexity']:.2f}",
        f"{row['share_trained']:.0%}",
        f"{row['tokens_per_s']:,.0f}",
        f"{row['ratio']:.2f}x",
    ]


def _table(rows: list[dict[str, Any]]) -> Table:
    title = "Five variants, the same data and steps (perplexity per byte)"
    return screen_table(title, COLUMNS, map(_cells, rows))


def _write(args: DemoArguments, rows: list[dict[str, Any]]) -> None:
    write_text(args.out / "demo.md", markdown_table(COLUMNS, map(_cells, rows), left=1))
    write_json(args.out / "demo.json", {"variants": rows})
    _plot(rows, args.out / "demo.png")


def _plot(rows: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5))
    axes = figure.subplots()
    for row in rows:
        steps, losses = zip(*row["training_loss"], strict=True)
        axes.plot(steps, losses, label=row["variant"], color=COLORS[row["variant"]])
    axes.set_xlabel("step")
    axes.set_ylabel("training loss (nats per byte)")
    axes.set_title("Five variants on the Python standard library's sources")
    axes.grid(alpha=0.3)
    axes.legend()
    save_figure(figure, path)
