"""`mixit-titan params`: what a model or a run takes, without building either.

A model by its flavor is answered without torch. A run (--config) needs it, to read the config.
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from mixit_titan.errors import ConfigError
from mixit_titan.model.accounting import report
from mixit_titan.model.hardware import GIB, GPUS
from mixit_titan.model.shapes import FLAVORS, find_flavor
from mixit_titan.model.storage import Storage, choose_form
from mixit_titan.model.variants import VARIANTS, find_variant
from mixit_titan.options import read_known_options
from mixit_titan.ranges import COUNT, Range
from mixit_titan.tables import markdown_table

if TYPE_CHECKING:
    from mixit_titan.config.estimate import Estimate

_NODE = 8


@dataclass
class ParamsArguments:
    """Parameters, FLOPs and memory of a model; with --config, what a run of that file takes on
    GPUs: memory for each recomputation, communication, and modelled tokens/s.

    Example: mixit-titan params --variant frozen_qk --flavor 160m --ranks 8

    Example: mixit-titan params --config train_configs/1b_fineweb_edu.toml --ranks 8 --gpu H100
    """

    variant: Annotated[str | None, tyro.conf.arg(help=", ".join(VARIANTS))] = None
    flavor: Annotated[str, tyro.conf.arg(help=", ".join(FLAVORS))] = "debug"
    ranks: Annotated[int | None, Range(least=1, most=2**20)] = None
    """Ranks that share the memory by FSDP2; with --config, GPUs (default: 1; 8 with --config)."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """What the products are computed in: frozen weights and mixing matrices are kept in it."""
    storage: Storage = "auto"
    """The form of the mixing matrices (docs/mixing.md)."""
    seq_len: Annotated[int | None, COUNT] = None
    """Instead of the flavor's."""
    config: str | None = None
    """A TOML file. Any of its keys can be overridden: --section.key value."""
    gpu: Annotated[str, tyro.conf.arg(help=", ".join(GPUS))] = "H100"
    """For --config and --shipped."""
    shipped: bool = False
    """What each of the shipped configs for GPUs takes, as the tables of docs/hardware.md."""
    json: bool = False
    """One line of JSON instead of text."""


def params_command(arguments: list[str]) -> None:
    args, overrides = read_known_options(ParamsArguments, arguments, prog="mixit-titan params")
    _check(args, overrides)
    if args.shipped:
        from mixit_titan.config.shipped_estimates import shipped_estimates, shipped_markdown

        found = shipped_estimates(ranks=args.ranks or _NODE, gpu=args.gpu)
        rows = [estimate.as_json() | {"config": name} for name, estimate in found]
        print(json.dumps(rows) if args.json else shipped_markdown(found))
    elif args.config is not None:
        _run(args, overrides)
    else:
        _model(args)


def _check(args: ParamsArguments, overrides: list[str]) -> None:
    if args.config is None:
        if overrides:
            raise ConfigError(
                f"unknown option {overrides[0]!r}: keys of a config go with --config FILE"
            )
        return
    plain = {field.name: field.default for field in dataclasses.fields(ParamsArguments)}
    for name in ("flavor", "dtype", "storage", "seq_len", "shipped"):
        if getattr(args, name) != plain[name]:
            flag = name.replace("_", "-")
            raise ConfigError(
                f"--{flag} does not go with --config: set a key of the file instead, such as "
                "--model.flavor, --model.seq_len or --model.mixing.storage"
            )


def _model(args: ParamsArguments) -> None:
    shape, variant = find_flavor(args.flavor), find_variant(args.variant or "standard")
    if args.seq_len is not None:
        shape = dataclasses.replace(shape, seq_len=args.seq_len)
    form = choose_form(args.storage, shape, args.dtype)
    ranks = args.ranks or 1
    counts = report(shape, variant, form, seq_len=shape.seq_len, ranks=ranks, dtype=args.dtype)
    counts = {"flavor": args.flavor, **counts}
    print(json.dumps(counts) if args.json else _model_text(counts))


def _run(args: ParamsArguments, overrides: list[str]) -> None:
    from mixit_titan.config.estimate import estimate
    from mixit_titan.config.run import plan_run
    from mixit_titan.model.hardware import find_gpu

    assert args.config is not None
    ranks = args.ranks or _NODE
    if args.variant is not None:
        overrides = [*overrides, "--model.variant", args.variant]
    gpu = find_gpu(args.gpu)
    plan = plan_run(args.config, overrides, world_size=ranks, on_gpus=True, gpu=gpu)
    found = estimate(plan, ranks=ranks, gpu=args.gpu)
    if args.json:
        print(json.dumps({"config": args.config, **found.as_json()}))
    else:
        steps = plan.sections.training.steps
        print(f"{Path(args.config).name}: {_run_text(found, steps)}")


def _run_text(found: "Estimate", steps: int) -> str:
    memory, received = found.memory, found.received
    fixed = {
        "weights": memory.weights,
        "gradients": memory.gradients,
        "optimizer": memory.optimizer,
        "mixing": memory.mixing,
        "gathered by FSDP2": memory.gathered,
        "validation": memory.validation,
    }
    rows = [
        (
            other.recomputation
            + (" (this run)" if other.recomputation == found.recomputation else ""),
            f"{other.memory.activations / GIB:.1f}",
            f"{other.memory.logits / GIB:.1f}",
            f"{other.memory.backward / GIB:.1f}",
            f"{other.memory.total / GIB:.1f}",
            "yes" if other.fits else "no",
            other.largest_batch or "none",
            f"{other.tokens_per_s:,.0f}",
        )
        for other in found.alternatives
    ]
    header = ("recomputation", "activations", "logits", "backward", "total", "fits")
    table = markdown_table((*header, "largest local batch", "tokens/s"), rows, left=1)
    moved = ", ".join(
        f"{name} {size / 1e9:.2f}" for name, size in dataclasses.asdict(received).items() if size
    )
    return "\n".join(
        [
            f"{found.variant} on {found.ranks} x {found.gpu.name}, modelled and not measured",
            f"  batch             {found.local_batch_size} rows on a GPU at once, "
            f"{found.global_batch_size} in a step",
            "  GiB of a GPU      " + ", ".join(f"{k} {v / GIB:.1f}" for k, v in fixed.items()),
            f"  and with them, of {found.gpu.available / GIB:.1f} GiB (logits and backward are not "
            "there at once):",
            "",
            table,
            f"  GB received       {received.total / 1e9:.2f} by a GPU in a step"
            + (f": {moved}" if moved else ""),
            f"  speed             {found.tokens_per_s:,.0f} tokens/s, "
            f"{found.seconds_per_step:.3f} s per step, {found.days:.2f} days for {steps:,} steps",
            *([] if found.fits else [f"  it does not fit   {found.advice()}"]),
            "  assumed",
            *(f"    - {line}" for line in found.assumptions),
        ]
    )


def _model_text(counts: dict) -> str:
    memory, flops = counts["memory_per_rank_bytes"], counts["flops_per_token"]
    mib = {key: f"{value / 2**20:,.1f} MiB" for key, value in memory.items()}
    return "\n".join(
        [
            f"{counts['variant']}, flavor {counts['flavor']}, sequence {counts['seq_len']:,}",
            f"  trained parameters   {counts['trainable_params']:,} "
            f"({counts['share_trained']:.1%})",
            f"  frozen parameters    {counts['frozen_params']:,}",
            f"  mixing elements      {counts['mixing_elements']:,}"
            + (f" ({counts['mixing_storage']})" if counts["mixing_storage"] else ""),
            f"  FLOPs per token      {flops['forward']:,} forward, {flops['backward']:,} backward",
            f"  full checkpoint      {counts['checkpoint_bytes'] / 2**20:,.1f} MiB",
            f"  memory per rank ({counts['ranks']})  {mib['total']}: weights {mib['weights']}, "
            f"gradients {mib['gradients']}, optimizer {mib['optimizer']}, mixing {mib['mixing']}",
        ]
    )
