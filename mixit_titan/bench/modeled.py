"""Models what a config for GPUs takes on a machine without one; nothing is measured."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table as ScreenTable

from mixit_titan.bench.arguments import BenchArguments
from mixit_titan.bench.report import title
from mixit_titan.bench.runs import plan_point, plan_variant, run_table
from mixit_titan.bench.settings import Point
from mixit_titan.bench.steps import PLAIN
from mixit_titan.config.estimate import estimate
from mixit_titan.config.ranks import own_ranks
from mixit_titan.config.small import small_model
from mixit_titan.device import has_gpu
from mixit_titan.errors import ConfigError
from mixit_titan.model.accounting import speed_limit
from mixit_titan.model.hardware import GIB, find_gpu
from mixit_titan.tables import screen_table

GPU = "H100"


def lacks_gpu(args: BenchArguments) -> bool:
    """Return whether the run is for GPUs and this machine has none."""
    return run_table(args).get("device") == "gpu" and not has_gpu()


def model_points(each: Sequence[BenchArguments]) -> dict[str, Any]:
    """Return the contents of modeled.json. `each`: the arguments of each point, as in a scan."""
    if PLAIN in each[0].variants:
        raise ConfigError(
            "the plain Llama can be measured but not modeled, and this machine has no GPU: leave "
            "it out of --variants"
        )
    return {"modeled": True, "measured": False, "points": [_model_point(args) for args in each]}


def _model_point(args: BenchArguments) -> dict[str, Any]:
    run, where = run_table(args), args.config or "the command line"
    ranks = args.nproc
    if ranks is None:  # those that the file is for, if it says so
        ranks = 1 if args.config is None else own_ranks(args.config, list(args.overrides))
    point = plan_point(run, ranks, where, find_gpu(GPU))
    rows = [_row(point, variant, where) for variant in args.variants]
    standard = rows[0]["tokens_per_s"]
    for row in rows:
        speed = row["tokens_per_s"]
        row["ratio"] = None if speed is None else speed / standard
    return {"gpu": GPU, "settings": point.as_json(), "variants": rows}


def _row(point: Point, variant: str, where: str) -> dict[str, Any]:
    plan = plan_variant(point.run, variant, point.ranks, where, find_gpu(GPU))
    found = estimate(plan, ranks=point.ranks, gpu=GPU).as_json()
    rows = dataclasses.replace(point.shape, seq_len=point.seq_len)
    return found | {"variant": variant, "limit": speed_limit(rows, point.stack(variant))}


def modeled_table(point: dict[str, Any]) -> ScreenTable:
    """Return the table of modeled speeds and memory for one point."""
    header = ("variant", "tokens/s", "to standard", "FLOP ratio", "GiB of a GPU", "fits")
    rows = [
        (
            row["variant"],
            "-" if row["tokens_per_s"] is None else f"{row['tokens_per_s']:,.0f}",
            "-" if row["ratio"] is None else f"{row['ratio']:.3f}x",
            f"{row['limit']:.3f}x",
            f"{row['memory_bytes']['total'] / GIB:.1f}",
            "yes" if row["fits"] else "no",
        )
        for row in point["variants"]
    ]
    settings = point["settings"]
    gpus = f"Modeled, not measured: {settings['ranks']} x {point['gpu']}, {title(settings)}"
    style = {"title_justify": "left", "box": box.SIMPLE_HEAD}
    return screen_table(gpus, header, rows, no_wrap=True, **style)


def why_modeled(args: BenchArguments) -> str:
    """Say why the run was modeled, and how a small one is measured here."""
    name = args.config or "this run"
    params = "" if args.config is None else f" (assumptions: mixit-titan params --config {name})"
    return (
        f"{name} is for GPUs and this machine has none: nothing was measured{params}. A small "
        f"model with its settings can be measured on the CPU by {small_model(run_table(args))}"
    )
