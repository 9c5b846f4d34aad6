"""`mixit-titan eval`: evaluate a checkpoint on lm-eval's tasks, or on any text."""

import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from mixit_titan.device import check_device
from mixit_titan.errors import ConfigError
from mixit_titan.evaluation.documents import read_documents
from mixit_titan.evaluation.likelihood import Share, plain_forward
from mixit_titan.evaluation.ranks import joined
from mixit_titan.evaluation.tasks import evaluate_tasks, load_tasks
from mixit_titan.evaluation.text import text_loss
from mixit_titan.fields import Group
from mixit_titan.files import json_text, write_json
from mixit_titan.jobs.lock import locked
from mixit_titan.ranges import COUNT, NOT_NEGATIVE, Range
from mixit_titan.runtime.launch import launch, local_ranks, ranks_from_environment
from mixit_titan.runtime.trained import Trained, load_trained
from mixit_titan.tables import literal, screen_table

_LARGE = 1e6  # from here on, tables use scientific notation


@dataclass(frozen=True)
class EvalArguments:
    """Evaluate a checkpoint on tasks of EleutherAI's lm-evaluation-harness, or on a text.

    Example: mixit-titan eval runs/debug_mixit --text README.md
             mixit-titan eval runs/debug_mixit --tasks lambada_openai,hellaswag --limit 100
    """

    run_dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_DIR")]
    """The folder of a training run (its dump_folder)."""
    tasks: Annotated[str | None, Group("what is evaluated")] = None
    """Tasks of the harness, or folders of its YAML files, separated by commas."""
    text: Path | None = None
    """A text file, .jsonl or .parquet; a folder of such files; or a folder that `prepare` wrote."""
    step: Annotated[int | None, NOT_NEGATIVE, Group("how")] = None
    """The step of the checkpoint (default: the newest)."""
    limit: Annotated[int | None, COUNT] = None
    """Evaluate only the first N examples of each task, or N documents of the text."""
    split: Annotated[str | None, Group("with --text")] = None
    """--text: the split of a prepared folder (default: validation)."""
    context: Annotated[int | None, COUNT] = None
    """--text: tokens in the context window (default: the longest that the model takes)."""
    stride: Annotated[int | None, COUNT] = None
    """--text: tokens by which the window advances in documents longer than --context (default:
    --context, so that windows do not overlap)."""
    out: Annotated[Path | None, Group("how it runs")] = None
    """Folder for the JSON files, in step-N (default: RUN_DIR/eval)."""
    json: bool = False
    """Print JSON instead of tables."""
    nproc: Annotated[int | None, Range(least=1, most=4096)] = None
    """Ranks on this machine (default: one per GPU, else 1). Results do not depend on it."""

    def check(self) -> None:
        """Refuse, in one sentence, options that do not belong together."""
        if (self.tasks is None) == (self.text is None):
            raise ConfigError("name what to evaluate the checkpoint on: either --tasks or --text")
        if self.text is None:
            for name in ("split", "context", "stride"):
                if getattr(self, name) is not None:
                    raise ConfigError(f"--{name} is for --text: leave it out")
        elif self.stride is not None and self.context is not None and self.stride > self.context:
            raise ConfigError(
                f"--stride is {self.stride}: it must be at most --context, {self.context}"
            )


def run_eval(args: EvalArguments, arguments: list[str]) -> None:
    """Evaluate on this rank, or start more ranks, which get the same `arguments`."""
    args.check()
    world_size = ranks_from_environment()
    if world_size is None:
        check_device()
        ranks = local_ranks(args.nproc)
        if ranks > 1:
            sys.exit(launch(ranks, ["eval", *_of_a_rank(arguments)], lambda: None))
    with joined(world_size or 1) as share:
        _evaluate(args, share)


def _of_a_rank(arguments: list[str]) -> list[str]:
    """The words without --nproc, which torchrun would take for its own."""
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--nproc":
            next(words, None)
        elif not word.startswith("--nproc="):
            kept.append(word)
    return kept


def _evaluate(args: EvalArguments, share: Share) -> None:
    """Evaluate on every rank; the first one writes the files and prints."""
    kind = _text if args.tasks is None else _tasks
    trained = load_trained(args.run_dir, args.step)
    measure = kind(args, trained)  # refuses mistakes before any folder is made
    out, first = args.out or args.run_dir / "eval", share.rank == 0
    with locked(out) if first else nullcontext():
        found = measure(share)
        if not first:
            return
        longest = trained.model.config.max_seq_len
        folder = out / f"step-{trained.step}"
        files = {folder / _file(name, result, longest): result for name, result in found.items()}
        for file, result in files.items():
            write_json(file, result)
    if args.json:
        print(json_text(_printed(args, found), indent=2))
        return
    console = Console()
    console.print(_tasks_table(trained, found) if args.tasks else _text_table(trained, found))
    for file in files:
        console.print(f"wrote {file}", soft_wrap=True)
    console.print(_next(args), soft_wrap=True)


Measure = Callable[[Share], dict[str, dict[str, Any]]]
"""A function from a rank's share to the results: name of a task or of the text -> its result."""


def _file(name: str, result: dict[str, Any], longest: int) -> str:
    """The name of a file, with the settings that are not defaults, so that no evaluation replaces
    a different one."""
    default = {"context": longest, "stride": result.get("context"), "limit": None}
    changed = {key: result.get(key, usual) for key, usual in default.items()}
    said = [f"-{key}-{value}" for key, value in changed.items() if value != default[key]]
    return f"{name}{''.join(said)}.json"


def _text(args: EvalArguments, trained: Trained) -> Measure:
    model = trained.model.config
    longest = model.max_seq_len
    context = args.context or longest
    if context > longest:
        raise ConfigError(
            f"--context is {context}, longer than the model's {longest}: lower it, or train with a "
            "longer training.seq_len"
        )
    if args.stride is not None and args.stride > context:
        raise ConfigError(f"--stride is {args.stride}: it must be at most the context, {context}")
    documents = read_documents(args.text, trained, split=args.split, limit=args.limit)
    words = ["text", args.text.parent.name, args.text.resolve().name, args.split]
    name = "-".join(word for word in words if word)

    def measure(share: Share) -> dict[str, dict[str, Any]]:
        found = text_loss(
            documents,
            plain_forward(trained.model),
            vocab=model.shape.vocab,
            context=context,
            stride=args.stride or context,
            share=share,
        )
        return {name: _about(args, trained) | found}

    return measure


def _tasks(args: EvalArguments, trained: Trained) -> Measure:
    names = tuple(name.strip() for name in args.tasks.split(",") if name.strip())
    if not names:
        raise ConfigError("--tasks is empty: name one or more, separated by commas")
    tasks = load_tasks(names)
    from mixit_titan.evaluation.harness import TrainedModel

    def measure(share: Share) -> dict[str, dict[str, Any]]:
        found = evaluate_tasks(TrainedModel(trained, share=share), tasks, limit=args.limit)
        about = _about(args, trained) | {"harness": f"lm-eval {version('lm_eval')}"}
        return {name: {"task": name} | about | result for name, result in found.items()}

    return measure


def _about(args: EvalArguments, trained: Trained) -> dict[str, Any]:
    stack = trained.model.config.stack.name
    return {"run": str(args.run_dir), "variant": stack, "step": trained.step, "limit": args.limit}


def _printed(args: EvalArguments, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return next(iter(found.values())) if args.tasks is None else found


def _tasks_table(trained: Trained, found: dict[str, dict[str, Any]]) -> Table:
    title = f"{trained.model.config.stack.name}, step {trained.step}"
    rows = [
        [literal(name), metric, _figure(value), _error(result, metric), result["examples"] or ""]
        for name, result in found.items()
        for metric, value in result["metrics"].items()
        if "_stderr" not in metric
    ]
    header = ["task", "metric", "value", "standard error", "examples"]
    return screen_table(title, header, rows, left=2)


def _text_table(trained: Trained, found: dict[str, dict[str, Any]]) -> Table:
    (result,) = found.values()
    title = f"{trained.model.config.stack.name}, step {trained.step}, on {literal(result['text'])}"
    caption = (
        f"perplexity {result['perplexity']:.2f}, {_figure(result['bits_per_byte'])} bits per byte"
    )
    rows = [
        [_span(row["first"], row["last"]), f"{row['tokens']:,}", f"{row['loss']:.4f}"]
        for row in result["positions"]
    ]
    rows.append(["all", f"{result['tokens']:,}", f"{result['loss']:.4f}"])
    header = ["tokens of context", "tokens", "loss"]
    return screen_table(title, header, rows, caption=caption, min_width=len(caption) + 4)


def _error(result: dict[str, Any], metric: str) -> str:
    name, comma, kind = metric.partition(",")
    return _figure(result["metrics"].get(f"{name}_stderr{comma}{kind}"))


def _figure(value: float | None) -> str:
    """A value short enough for a column: a poor model's perplexity has many digits."""
    if value is None:
        return ""
    return f"{value:.4f}" if abs(value) < _LARGE else f"{value:.4e}"


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _next(args: EvalArguments) -> str:
    run = shlex.quote(str(args.run_dir))
    return (
        "Next: --step N evaluates an earlier checkpoint; mixit-titan analyze timeline "
        f"{run} analyzes all of them"
    )
