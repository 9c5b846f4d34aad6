"""`mixit-titan compare`: runs side by side, at equal tokens, FLOPs and seconds of training."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from mixit_titan.comparison.curve import Loss
from mixit_titan.comparison.groups import group_runs
from mixit_titan.comparison.report import Comparison, as_json
from mixit_titan.comparison.runs import CannotCompare, TrainingRun, find_folders, read_run
from mixit_titan.comparison.sentences import sentences
from mixit_titan.comparison.tables import tables
from mixit_titan.comparison.task_runs import read_task_run
from mixit_titan.errors import ConfigError
from mixit_titan.files import write_json, write_text, writing
from mixit_titan.jobs.lock import locked
from mixit_titan.tables import literal, markdown_table, screen_table


@dataclass(frozen=True, kw_only=True)
class CompareArguments:
    """Compare training runs, or runs of one task: their losses at equal tokens, equal FLOPs and
    equal seconds of training.

    Runs that differ only in their seeds form one group, with a mean and a 95% interval. Unfinished
    runs are compared up to their latest step.

    Example: mixit-titan compare runs/demo --out runs/demo/compare
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Folders of runs, globs, or folders that contain runs, such as those of demo, sweep and
    ladder."""
    out: Path | None = None
    """Folder for compare.json, compare.md and compare.png (default: print only)."""


def run_compare(args: CompareArguments) -> None:
    """Print the comparison and, with --out, write it as JSON, Markdown and a figure."""
    comparison = compare(find_folders(args.runs))
    console = Console(width=None if Console().is_terminal else 200)
    for title, header, rows in tables(comparison):
        console.print(screen_table(title, header, [map(literal, row) for row in rows]))
    for sentence in sentences(comparison):
        console.print(literal(sentence), soft_wrap=True, highlight=False)
    for folder, why in comparison.left_out.items():
        console.print(literal(f"Left out: {folder} {why}"), soft_wrap=True, highlight=False)
    if args.out is not None:
        _write(comparison, args.out, console)
    else:
        words = ["mixit-titan", "compare", *args.runs, "--out", "runs/compare"]
        said = f"To keep this, with a figure: {shlex.join(words)}"
        console.print(said, soft_wrap=True, markup=False, highlight=False)


def compare(folders: Sequence[Path]) -> Comparison:
    """Compare the runs in `folders`; a ConfigError if fewer than two of them can be compared."""
    runs, left_out = [], {}
    for folder in folders:
        try:
            is_task = (folder / "result.json").exists()
            runs.append((read_task_run if is_task else read_run)(folder))
        except CannotCompare as why:
            left_out[str(folder)] = str(why)
    for sieve in (_of_one_text, _once):
        runs, other = sieve(runs)
        left_out |= other
    loss = _common_loss(runs)
    usable = [run for run in runs if len(run.curve(loss).loss)]
    left_out |= {
        str(run.folder): "has no finite validation loss" for run in runs if run not in usable
    }
    if len(usable) < 2:
        why = "; ".join(f"{folder} {reason}" for folder, reason in left_out.items())
        found = "only one run was found" if usable else "no runs were found"
        raise ConfigError(
            f"{found} that can be compared, and a comparison needs two"
            + (f": {why}" if why else ": name more folders of runs")
        )
    return Comparison(loss, group_runs(usable, loss), left_out)


def _of_one_text(runs: list[TrainingRun]) -> tuple[list[TrainingRun], dict[str, str]]:
    """The runs that were validated on the text of most of them, and why the others were not."""
    counts = Counter(repr(run.text) for run in runs)
    most = max(counts, key=counts.get, default="")  # of equal counts the first
    same = [run for run in runs if repr(run.text) == most]
    others = [run for run in runs if repr(run.text) != most]
    return same, {str(run.folder): _unlike(run, same[0]) for run in others}


def _unlike(run: TrainingRun, first: TrainingRun) -> str:
    if (run.accuracy is None) != (first.accuracy is None):
        kinds = ("a training run", "a run of a task")
        here, there = (kinds[each.accuracy is not None] for each in (run, first))
        return f"is {here}, and {first.folder} is {there}"
    if run.accuracy is None:
        return f"was validated on other text, or on other rows of it, than {first.folder}"
    return f"is not of the same task at the same difficulty as {first.folder}"


def _once(runs: list[TrainingRun]) -> tuple[list[TrainingRun], dict[str, str]]:
    """Drop repeated runs: two with the same settings and seeds are not two samples."""
    first: dict[str, TrainingRun] = {}
    again = {}
    for run in runs:
        key = repr((sorted(run.settings.items(), key=str), run.seeds))
        if first.setdefault(key, run) is not run:
            again[str(run.folder)] = f"repeats {first[key].folder}: same settings and seeds"
    return list(first.values()), again


def _common_loss(runs: list[TrainingRun]) -> Loss:
    """Nats per token can be compared only if all runs have one tokenizer."""
    if any(run.accuracy is not None for run in runs):
        return "test_loss"
    tokenizers = {run.tokenizer for run in runs}
    return "validation_loss" if len(tokenizers) < 2 else "bits_per_byte"


def _markdown(comparison: Comparison) -> str:
    parts = []
    for title, header, rows in tables(comparison):
        parts += [f"## {title}", markdown_table(header, rows, left=1).rstrip("\n")]
    parts += sentences(comparison)
    parts += [f"Left out: {folder} {why}" for folder, why in comparison.left_out.items()]
    parts.append("![Loss over steps, tokens, bytes, FLOPs, seconds and parameters](compare.png)")
    return "\n\n".join(parts) + "\n"


def _write(comparison: Comparison, out: Path, console: Console) -> None:
    from mixit_titan.comparison.figure import draw

    with locked(out), writing(out):
        write_json(out / "compare.json", as_json(comparison))
        write_text(out / "compare.md", _markdown(comparison))
        draw(comparison, out / "compare.png")
    for name in ("compare.json", "compare.md", "compare.png"):
        console.print(f"wrote {out / name}")
