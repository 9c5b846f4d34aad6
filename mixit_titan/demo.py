"""Trains all five variants on this machine, one after another, and compares them.

Each run is what `mixit-titan train` does with train_configs/debug_VARIANT.toml, for more steps than
the file says. The files differ only in the variant. An interrupted run resumes from its last
checkpoint; a finished one is kept.
"""

import shlex
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.table import Table

from mixit_titan.config.job import TRAINING_MODULES, training_job
from mixit_titan.device import check_device
from mixit_titan.errors import ConfigError
from mixit_titan.files import write_json, write_text
from mixit_titan.jobs.job import Job
from mixit_titan.jobs.lock import locked
from mixit_titan.jobs.runner import Runner
from mixit_titan.model.accounting import count
from mixit_titan.model.shapes import FLAVORS
from mixit_titan.model.variants import VARIANTS
from mixit_titan.plotting import color_of, legend_below, save_figure
from mixit_titan.ranges import COUNT
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.tables import markdown_table, screen_table


@dataclass
class DemoArguments:
    """Train all five variants and compare them.

    Example: mixit-titan demo --out runs/demo --steps 300
    """

    out: Path = Path("runs/demo")
    """Folder for the runs and their comparison."""
    steps: Annotated[int, COUNT] = 300
    """Training steps of each variant."""


def run_demo(args: DemoArguments) -> None:
    """Train the variants, print and write their comparison, and say what to type next. A run that
    has finished is kept."""
    console = Console()
    if args.steps < 10:
        raise ConfigError(f"--steps is {args.steps}: a comparison needs at least 10")
    check_device()
    with locked(args.out):
        jobs = [_job(variant, args) for variant in VARIANTS]
        runner = Runner(jobs, preload=TRAINING_MODULES)
        runner.run()
        runner.raise_if_failed()
        rows = [_summary(job.name, args, job.folder) for job in jobs]
        for row in rows:
            row["ratio"] = row["tokens_per_s"] / rows[0]["tokens_per_s"]
        _write(args, rows)
    console.print(_table(rows))
    console.print(
        "tokens/s: one run after another, on a machine that may be doing other things too."
    )
    for name in ("demo.json", "demo.md", "demo.png"):
        console.print(f"wrote {args.out / name}", soft_wrap=True)
    _print_next(console, {job.name: job.folder for job in jobs}, args.out)


def _print_next(console: Console, folders: dict[str, Path], out: Path) -> None:
    console.print("Next:")
    for words in (
        ["mixit-titan", "generate", str(folders["mixit"]), "--prompt", "def ", "--tokens", "50"],
        ["mixit-titan", "compare", str(out), "--out", str(out / "compare")],
    ):
        console.print(f"  {shlex.join(words)}", soft_wrap=True, markup=False, highlight=False)


def _job(variant: str, args: DemoArguments) -> Job:
    overrides = ["--training.steps", str(args.steps), "--training.global_batch_size", "16"]
    overrides += ["--lr_scheduler.warmup_steps", str(min(40, args.steps))]
    # Often enough for `compare`, which interpolates linearly between two validations.
    overrides += ["--validator.freq", str(args.steps // 5), "--validator.rows", "-1"]
    overrides += ["--checkpoint.interval", "100"]
    folder = args.out / f"{variant}_{args.steps}"
    named = {"name": variant, "steps": args.steps}
    return training_job(f"debug_{variant}", overrides, folder, **named, nproc=1)


def _summary(variant: str, args: DemoArguments, folder: Path) -> dict[str, Any]:
    lines = read_metrics(folder / "metrics.jsonl")
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
    title = "The variants on the same data, for equally many steps (perplexity per byte)"
    return screen_table(title, COLUMNS, map(_cells, rows))


def _write(args: DemoArguments, rows: list[dict[str, Any]]) -> None:
    write_text(args.out / "demo.md", markdown_table(COLUMNS, map(_cells, rows), left=1))
    write_json(args.out / "demo.json", {"variants": rows})
    _plot(rows, args.out / "demo.png")


def _plot(rows: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for n, row in enumerate(rows):
        steps, losses = zip(*row["training_loss"], strict=True)
        axes.plot(steps, losses, label=row["variant"], color=color_of(row["variant"], n))
    axes.set_xlabel("step")
    axes.set_ylabel("training loss (nats per byte)")
    axes.set_title("The variants on the Python standard library's sources")
    axes.grid(alpha=0.3)
    legend_below(figure, axes)
    save_figure(figure, path)
