"""`mixit-titan bench`: from its arguments to a table, bench.json and bench.png."""

import contextlib
import dataclasses
import functools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from mixit_titan.bench.arguments import LEAST_ROUNDS, BenchArguments, command_line
from mixit_titan.bench.arithmetic import limits, limits_markdown
from mixit_titan.bench.compare import compare, comparison_table, measured_otherwise, only_in
from mixit_titan.bench.figures import draw_point
from mixit_titan.bench.modeled import lacks_gpu, model_points, modeled_table, why_modeled
from mixit_titan.bench.profile import operator_table
from mixit_titan.bench.ranks import add_efficiency, measure_alone, shards_over_all
from mixit_titan.bench.report import remarks, tables
from mixit_titan.bench.run import run_point
from mixit_titan.bench.runs import read_point, split_axes
from mixit_titan.bench.scan import scan_jobs, write_scan
from mixit_titan.bench.settings import Point
from mixit_titan.bench.size import size_of_step, too_long
from mixit_titan.bench.steps import PLAIN
from mixit_titan.device import check_device
from mixit_titan.errors import ConfigError, unknown
from mixit_titan.files import write_json, write_text, writing
from mixit_titan.jobs.lock import locked
from mixit_titan.jobs.runner import Runner
from mixit_titan.model.variants import VARIANTS
from mixit_titan.runtime.launch import launch, local_ranks, ranks_from_environment


def run_bench(args: BenchArguments) -> None:
    """Run the command: compare files, compute FLOP ratios, model a run for GPUs, or measure."""
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
    if args.device != "cpu":
        check_device()
    if args.rounds < LEAST_ROUNDS:
        raise ConfigError(
            f"--rounds is {args.rounds}: a median of fewer than {LEAST_ROUNDS} says little"
        )
    args = dataclasses.replace(args, variants=_variants(args), stack=())
    each = split_axes(args)
    ranks = ranks_from_environment()
    if ranks is not None and len(each) > 1:
        raise ConfigError("a scan starts its own processes: use --nproc instead of torchrun")
    if ranks is None and lacks_gpu(each[0]):
        _model(each, args.out, console)
        return
    nproc = ranks or local_ranks(args.nproc or 1)
    points = [read_point(one, nproc) for one in each]
    for variant in set(args.variants) - {PLAIN}:
        points[0].stack(variant)  # raises if it is not a variant for this number of layers
    if PLAIN in args.variants:
        _check_plain(points)
    if len(points) > 1:
        _scan(args, each, points, console)
    else:
        _measure_point(each, nproc, 0, args.out)


def _model(each: Sequence[BenchArguments], out: Path, console: Console) -> None:
    """Model a config for GPUs on a machine without one."""
    found = model_points(each)
    with writing(out):
        write_json(out / "modeled.json", found)
    for point in found["points"]:
        console.print(modeled_table(point))
    console.print(why_modeled(each[0]))
    _say(console, f"wrote {out / 'modeled.json'}")


def _variants(args: BenchArguments) -> tuple[str, ...]:
    """Return what is measured: the variants, followed by the stacks."""
    names = [name for text in args.variants for name in text.split(",")]
    for name in names:
        if name not in (*VARIANTS, PLAIN) and not set(name) & set(" *@"):
            raise unknown("variant in --variants", name, [*VARIANTS, PLAIN])
    return tuple(dict.fromkeys(["standard", *names, *args.stack]))


def _check_plain(points: Sequence[Point]) -> None:
    if any(point.ranks > 1 for point in points):
        raise ConfigError("the plain Llama supports one rank only: leave it out of --variants")
    if any(point.documents for point in points):
        raise ConfigError(
            "the plain Llama cannot separate documents: leave it out of --variants, or "
            "set --documents off"
        )


def _measure_point(each: Sequence[BenchArguments], nproc: int, number: int, out: Path) -> None:
    """Measure on `nproc` ranks: this process is one of them, or starts them."""
    args = dataclasses.replace(each[number], out=out, nproc=None)  # torchrun takes it

    def measure_here() -> None:
        with locked(args.out) if os.environ["RANK"] == "0" else contextlib.nullcontext():
            _measure_here(args, nproc)

    if ranks_from_environment() is None:
        with locked(args.out):
            pass  # rank 0 will hold the lock: this only checks, before any rank starts, that it can
        code = launch(nproc, ["bench", *command_line(args)], measure_here)
        if code:
            sys.exit(code)
    else:
        measure_here()


def _measure_here(args: BenchArguments, ranks: int) -> None:
    console, point = _console(), read_point(args, ranks)
    if os.environ["RANK"] == "0":
        _say_size([point], args, console)
    profile_to = args.out / "profile" if args.profile else None
    alone = None
    if ranks > 1 and args.alone and shards_over_all(point) and os.environ["RANK"] == "0":
        console.print("[dim]one rank alone[/dim]")
        alone = measure_alone(args, point)  # others wait for the group
    found = run_point(
        point,
        args.variants,
        args.rounds,
        interleaved=args.interleaved,
        profile_to=profile_to,
        note=lambda text: console.print(f"[dim]{text}[/dim]"),
    )
    if found is None:
        return  # rank 0 reports
    if alone is not None:
        add_efficiency(found, alone)
    write_json(args.out / "bench.json", found)
    draw_point(found, args.out / "bench.png")
    _show(found, console)
    if profile_to is not None:
        for variant in args.variants:
            console.print(operator_table(variant, profile_to))
        _say(console, f"wrote {profile_to}/*.txt, and *.trace.json for chrome://tracing")
    _say_where(args, console)


def _say_size(points: Sequence[Point], args: BenchArguments, console: Console) -> None:
    """Print the size of the largest point before it is measured."""
    point = max(points, key=lambda point: point.tokens * point.counts("standard").flops_per_token)
    console.print(f"[dim]{size_of_step(point, args.variants)}[/dim]")
    warning = too_long(point, args.variants, args.rounds)
    if warning is not None:
        console.print(f"[yellow]{warning}[/yellow]")


def _show(found: dict[str, Any], console: Console) -> None:
    for table in tables(found):
        console.print(table)
    for remark in remarks(found):
        console.print(remark)


def _scan(
    args: BenchArguments, each: Sequence[BenchArguments], points: Sequence[Point], console: Console
) -> None:
    measure = functools.partial(_measure_point, each, points[0].ranks)
    _say_size(points, args, console)
    jobs = scan_jobs(points, args.variants, args.rounds, args.out, measure)
    with locked(args.out):
        runner = Runner(jobs)
        runner.run()
        runner.raise_if_failed()
        found = write_scan(points, jobs, args.out)
    for point in found["points"]:
        _show(point, console)
    _say_where(args, console)


def _say(console: Console, text: str) -> None:
    """Print a line that a terminal may wrap but that stays one line, so that it can be copied."""
    console.print(text, soft_wrap=True)


def _say_where(args: BenchArguments, console: Console) -> None:
    written = args.out / "bench.json"
    _say(console, f"wrote {written} and {args.out / 'bench.png'}")
    _say(console, f"compare with a later one: mixit-titan bench --compare {written} LATER.json")


def _compare(args: BenchArguments, console: Console) -> None:
    before, after = args.compare
    rows, fallen = compare(before, after, args.tolerance)
    console.print(comparison_table(rows, before, after))
    with locked(args.out), writing(args.out):
        write_json(args.out / "compare.json", rows)
    _say(console, f"wrote {args.out / 'compare.json'}")
    for one, other in ((before, after), (after, before)):
        alone = [f"{variant} ({point})" for point, variant in only_in(one, other)]
        if alone:
            console.print(f"not compared, only in {one}: {', '.join(alone)}")
        if measured_otherwise(one) and not measured_otherwise(other):
            console.print(
                f"{one} is from an earlier version, which timed a loop of its own, without "
                "the trainer's FSDP2 on one rank"
            )
    if fallen:
        console.print(f"slower by more than {args.tolerance:g}%: {', '.join(fallen)}")
        sys.exit(1)


def _limits(args: BenchArguments, console: Console) -> None:
    found = limits(args.limits)
    text = limits_markdown(found)
    with writing(args.out):
        write_json(args.out / "limits.json", found)
        write_text(args.out / "limits.md", text)
    console.print(text, markup=False)
    _say(console, f"wrote {args.out / 'limits.json'} and {args.out / 'limits.md'}")
