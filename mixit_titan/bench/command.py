"""`mixit-titan bench`: from its arguments to a table, bench.json and bench.png."""

import dataclasses
import functools
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from mixit_titan.bench.arithmetic import limits, limits_markdown
from mixit_titan.bench.compare import compare, comparison_table, only_in
from mixit_titan.bench.figures import draw_point
from mixit_titan.bench.ranks import run_point_on_ranks
from mixit_titan.bench.report import remarks, tables
from mixit_titan.bench.run import run_point
from mixit_titan.bench.scan import AXES, scan_jobs, write_scan
from mixit_titan.bench.settings import Point
from mixit_titan.bench.steps import PLAIN
from mixit_titan.device import has_gpu
from mixit_titan.errors import ConfigError, unknown
from mixit_titan.files import write_json, write_text
from mixit_titan.jobs.lock import locked
from mixit_titan.jobs.runner import Runner
from mixit_titan.model.shapes import find_flavor
from mixit_titan.model.variants import VARIANTS
from mixit_titan.runtime.launch import launch, local_ranks, ranks_from_environment

LEAST_ROUNDS = 8


@dataclass
class BenchArguments:
    """Measure the throughput of the variants, interleaved, beside what the arithmetic of each
    allows. Several values separated by commas make a scan, with a process for each point.

    Example: mixit-titan bench --width 512 --layers 12 --heads 8 --vocab 8192 --seq-len 256
    """

    variants: tuple[str, ...] = tuple(VARIANTS)
    """Any variants, and `plain`, a Llama in plain PyTorch. `standard` is always measured."""
    flavor: str = "debug"
    """A named shape. The next options change it."""
    width: str | None = None
    layers: int | None = None
    heads: int | None = None
    hidden: int | None = None
    """Width of the MLP (default: four times a --width, else the flavour's)."""
    vocab: int | None = None
    seq_len: str | None = None
    batch: str = "4"
    """Sequences of a step, on each rank."""
    dtype: str = "bfloat16" if has_gpu() else "float32"
    """bfloat16, float32 or both."""
    compile: str = "off"
    """on, off or both."""
    ac: str = "none"
    """Activation checkpointing: none, selective, full."""
    frozen: str = "sharded"
    """With many ranks: frozen weights are sharded, or resident (whole on each rank)."""
    rounds: int = LEAST_ROUNDS
    """Timed rounds, after the warm-up. Each is one step of every variant."""
    nproc: int = 1
    """Ranks to start here; they share the model by FSDP2. Ignored inside torchrun and srun."""
    alone: bool = True
    """With many ranks: measure one rank alone as well, for the efficiency of scaling. Turn it off
    where one rank cannot hold the model."""
    profile: bool = False
    """Write a Chrome trace and a table of the costliest operators of each variant."""
    compare: tuple[Path, Path] | None = None
    """Measure nothing: show what has changed between two bench.json, and exit with code 1 if a
    ratio has fallen by more than --tolerance."""
    tolerance: float = 5.0
    """Percent."""
    limits: str | None = None
    """Measure nothing: compute the limits of all flavours on a GPU, such as H100."""
    out: Path = Path("runs/bench")
    """Folder for bench.json and bench.png."""


def run_bench(args: BenchArguments) -> None:
    console = _console()
    if args.compare is not None:
        _compare(args, console)
    elif args.limits is not None:
        _limits(args, console)
    else:
        _measure(args, console)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 120)


def _measure(args: BenchArguments, console: Console) -> None:
    args = dataclasses.replace(args, variants=_variants(args.variants))
    points = _points(args)
    if args.rounds < LEAST_ROUNDS:
        raise ConfigError(
            f"--rounds is {args.rounds}: a median of fewer than {LEAST_ROUNDS} says little"
        )
    ranks = ranks_from_environment()
    if ranks is not None and len(points) > 1:
        raise ConfigError("a scan starts its own processes: use --nproc instead of torchrun")
    nproc = ranks or local_ranks(args.nproc)
    if nproc > 1 and PLAIN in args.variants:
        raise ConfigError("the plain Llama is for one rank: leave it out of --variants")
    if len(points) > 1:
        _scan(args, points, nproc, console)
    else:
        _measure_point(args, points[0], nproc, args.out)


def _variants(named: tuple[str, ...]) -> tuple[str, ...]:
    names = [name for text in named for name in text.split(",")]
    for name in names:
        if name not in (*VARIANTS, PLAIN):
            raise unknown("variant in --variants", name, [*VARIANTS, PLAIN])
    return tuple(dict.fromkeys(["standard", *names]))


def _points(args: BenchArguments) -> list[Point]:
    base = find_flavor(args.flavor)
    axes: dict[str, list[Any]] = {
        "seq_len": _numbers("--seq-len", args.seq_len, base.seq_len),
        "width": _numbers("--width", args.width, base.width),
        "batch": _numbers("--batch", args.batch, 0),
        "compile": [_switch(word) for word in args.compile.split(",")],
        "ac": args.ac.split(","),
        "dtype": args.dtype.split(","),
    }
    assert tuple(axes) == AXES
    points = []
    for values in itertools.product(*(dict.fromkeys(choices) for choices in axes.values())):
        at = dict(zip(axes, values, strict=True))
        given = {k: v for k in ("layers", "heads", "vocab") if (v := getattr(args, k)) is not None}
        hidden = args.hidden
        if hidden is None:
            hidden = 4 * at["width"] if args.width else base.hidden
        shape = dataclasses.replace(
            base, seq_len=at.pop("seq_len"), width=at.pop("width"), hidden=hidden, **given
        )
        points.append(Point(shape=shape, frozen=args.frozen, **at))
    return points


def _numbers(option: str, text: str | None, default: int) -> list[int]:
    if text is None:
        return [default]
    try:
        return [int(word) for word in text.split(",")]
    except ValueError as error:
        raise ConfigError(
            f"{option} is {text!r}: it must be a number, or several separated by commas"
        ) from error


def _switch(word: str) -> bool:
    if word not in ("on", "off"):
        raise unknown("value of --compile", word, ["on", "off"])
    return word == "on"


def _measure_point(args: BenchArguments, point: Point, nproc: int, out: Path) -> None:
    """By `nproc` ranks: this process is one, or starts them."""
    args = dataclasses.replace(args, out=out)
    if nproc > 1 and ranks_from_environment() is None:
        launch(nproc, ["bench", *_arguments(args, point)], lambda: None)
    else:
        _measure_here(args, point, nproc)


def _arguments(args: BenchArguments, point: Point) -> list[str]:
    """The command line of a rank that measures one point."""
    shape = point.shape
    words = ["--variants", *args.variants, "--flavor", args.flavor]
    for key in ("width", "layers", "heads", "hidden", "vocab", "seq_len"):
        words += [f"--{key.replace('_', '-')}", str(getattr(shape, key))]
    words += ["--batch", str(point.batch), "--dtype", point.dtype, "--ac", point.ac]
    words += ["--compile", "on" if point.compile else "off", "--rounds", str(args.rounds)]
    words += ["--frozen", point.frozen]
    words += ["--alone" if args.alone else "--no-alone", "--out", str(args.out)]
    return [*words, *(["--profile"] if args.profile else [])]


def _measure_here(args: BenchArguments, point: Point, ranks: int) -> None:
    console = _console()
    profile_to = args.out / "profile" if args.profile else None
    options = {"profile_to": profile_to, "note": lambda text: console.print(f"[dim]{text}[/dim]")}
    if ranks > 1:
        found = run_point_on_ranks(point, args.variants, args.rounds, alone=args.alone, **options)
        if found is None:
            return  # rank 0 reports
    else:
        found = run_point(point, args.variants, args.rounds, **options)
    write_json(args.out / "bench.json", found)
    draw_point(found, args.out / "bench.png")
    _show(found, console)
    if profile_to is not None:
        for variant in args.variants:
            console.print(f"\n{variant}\n{(profile_to / f'{variant}.txt').read_text()}")
        console.print(f"wrote {profile_to}/*.trace.json for chrome://tracing")
    console.print(f"wrote {args.out / 'bench.json'} and {args.out / 'bench.png'}")


def _show(found: dict[str, Any], console: Console) -> None:
    for table in tables(found):
        console.print(table)
    for remark in remarks(found):
        console.print(remark)


def _scan(args: BenchArguments, points: list[Point], nproc: int, console: Console) -> None:
    measure = functools.partial(_measure_point, args)
    jobs = scan_jobs(points, args.variants, args.rounds, nproc, args.out, measure)
    with locked(args.out):
        runner = Runner(jobs)
        runner.run()
        runner.raise_if_failed()
        found = write_scan(points, jobs, args.out)
    for point in found["points"]:
        _show(point, console)
    console.print(f"wrote {args.out / 'bench.json'} and {args.out / 'bench.png'}")


def _compare(args: BenchArguments, console: Console) -> None:
    before, after = args.compare
    rows, fallen = compare(before, after, args.tolerance)
    console.print(comparison_table(rows, before, after))
    write_json(args.out / "compare.json", rows)
    console.print(f"wrote {args.out / 'compare.json'}")
    for one, other in ((before, after), (after, before)):
        alone = [f"{variant} ({point})" for point, variant in only_in(one, other)]
        if alone:
            console.print(f"not compared, only in {one}: {', '.join(alone)}")
    if fallen:
        console.print(f"slower by more than {args.tolerance:g}%: {', '.join(fallen)}")
        sys.exit(1)


def _limits(args: BenchArguments, console: Console) -> None:
    found = limits(args.limits)
    text = limits_markdown(found)
    write_json(args.out / "limits.json", found)
    write_text(args.out / "limits.md", text)
    console.print(text, markup=False)
    console.print(f"wrote {args.out / 'limits.json'} and {args.out / 'limits.md'}")
