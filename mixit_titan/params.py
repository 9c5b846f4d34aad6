"""`mixit-titan params`: the size and cost of a model or a run, computed without building either.

A model given by its flavor needs no torch. A run (--config) needs it, to read the config.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from mixit_titan.config.toml import check_options
from mixit_titan.errors import ConfigError
from mixit_titan.fields import Group
from mixit_titan.files import json_text
from mixit_titan.model.accounting import mixing_layers, report
from mixit_titan.model.hardware import GIB, GPUS, GPUS_PER_NODE
from mixit_titan.model.shapes import FLAVORS, find_flavor
from mixit_titan.model.storage import Storage, choose_form
from mixit_titan.model.variants import VARIANTS, find_stack
from mixit_titan.options import flag, read_known_options, typed
from mixit_titan.ranges import COUNT, Range
from mixit_titan.tables import markdown_table

if TYPE_CHECKING:
    from mixit_titan.config.estimate import Estimate


@dataclass
class ParamsArguments:
    """Print parameters, FLOPs and memory of a model; with --config, what a run of that file takes
    on GPUs: memory for each recomputation mode, communication, and modeled tokens/s.

    Example: mixit-titan params --variant frozen_qk --flavor 160m --ranks 8

    Example: mixit-titan params --config train_configs/1b_fineweb_edu.toml --ranks 8 --gpu H100
    """

    variant: Annotated[
        str | None,
        Group("a model"),
        tyro.conf.arg(help=f"{', '.join(VARIANTS)} (default: standard)"),
    ] = None
    stack: str | None = None
    """Layers that differ from each other, such as "mixit*3 standard" or "frozen_qk@upper"."""
    flavor: Annotated[str, tyro.conf.arg(help=f"The size of the model: {', '.join(FLAVORS)}.")] = (
        "debug"
    )
    ranks: Annotated[int | None, Range(least=1, most=2**20)] = None
    """Ranks that share the memory by FSDP2; with --config and --shipped, GPUs. Default: 1; with
    --config, the product of the degrees in the file's [parallelism], or 8 where they leave it
    open."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """The dtype of matrix products; frozen weights and mixing matrices are stored in it, too."""
    storage: Storage = "auto"
    """How the mixing matrices are stored (docs/mixing.md)."""
    seq_len: Annotated[int | None, COUNT] = None
    """The sequence length (default: the flavor's)."""
    config: Annotated[str | None, Group("a run")] = None
    """The TOML file of a run. Any of its keys can be overridden: --section.key value."""
    gpu: Annotated[
        str, tyro.conf.arg(help=f"The GPU, with --config or --shipped: {', '.join(GPUS)}.")
    ] = "H100"
    shipped: bool = False
    """Print what each of the shipped configs takes, as the tables of docs/hardware.md."""
    json: Annotated[bool, Group("output")] = False
    """Print one line of JSON instead of text."""


def params_command(arguments: list[str]) -> None:
    """Run the command from its words."""
    args, overrides = read_known_options(ParamsArguments, arguments, prog="mixit-titan params")
    _check(args, overrides)
    if args.shipped:
        from mixit_titan.config.shipped_estimates import shipped_estimates, shipped_markdown

        found = shipped_estimates(ranks=args.ranks or GPUS_PER_NODE, gpu=args.gpu)
        rows = [estimate.as_json() | {"config": name} for name, estimate in found]
        print(json_text(rows) if args.json else shipped_markdown(found))
    elif args.config is not None:
        _run(args, overrides)
    else:
        with typed({field.name: flag(field.name) for field in dataclasses.fields(args)}):
            _model(args)


def _check(args: ParamsArguments, overrides: list[str]) -> None:
    check_options(overrides, ParamsArguments)
    if args.config is not None and args.shipped:
        raise ConfigError(
            "--config is one file and --shipped is all shipped files: choose one of the two"
        )
    if args.config is None and overrides:
        raise ConfigError(
            f"unknown option {overrides[0]!r}: keys of a config go with --config FILE"
        )
    if args.config is None and not args.shipped:
        return
    plain = {field.name: field.default for field in dataclasses.fields(ParamsArguments)}
    names = ["flavor", "dtype", "storage", "seq_len"]
    for name in [*names, *(["variant", "stack"] if args.shipped else [])]:
        if getattr(args, name) != plain[name]:
            advice = (
                "it shows the files as they are, with all variants; --config FILE can change one"
                if args.shipped
                else "set a key of the file instead, such as --model.flavor, --model.seq_len or "
                "--model.mixing.storage"
            )
            which = "--shipped" if args.shipped else "--config"
            raise ConfigError(f"{flag(name)} cannot be combined with {which}: {advice}")


def _model(args: ParamsArguments) -> None:
    shape = find_flavor(args.flavor)
    variant = "standard" if args.stack is None and args.variant is None else args.variant
    stack = find_stack(shape.layers, stack=args.stack, variant=variant)
    if args.seq_len is not None:
        shape = dataclasses.replace(shape, seq_len=args.seq_len)
    form = choose_form(args.storage, shape, args.dtype, layers=mixing_layers(shape, stack))
    ranks = args.ranks or 1
    counts = report(shape, stack, form, seq_len=shape.seq_len, ranks=ranks, dtype=args.dtype)
    counts = {"flavor": args.flavor, **counts}
    print(json_text(counts) if args.json else _model_text(counts))


def _run(args: ParamsArguments, overrides: list[str]) -> None:
    from mixit_titan.config.estimate import estimate
    from mixit_titan.config.plan import plan_run
    from mixit_titan.config.ranks import own_ranks
    from mixit_titan.model.hardware import find_gpu

    assert args.config is not None
    ranks = args.ranks or own_ranks(args.config, overrides)
    for key in ("variant", "stack"):
        if getattr(args, key) is not None:
            overrides = [*overrides, f"--model.{key}", getattr(args, key)]
    gpu = find_gpu(args.gpu)
    plan = plan_run(args.config, overrides, world_size=ranks, on_gpus=True, gpu=gpu)
    found = estimate(plan, ranks=ranks, gpu=args.gpu)
    if args.json:
        print(json_text({"config": args.config, **found.as_json()}))
    else:
        steps = plan.sections.training.steps
        print(f"{Path(args.config).name}: {_run_text(found, steps)}")


def _run_text(found: "Estimate", steps: int) -> str:
    memory, received = found.memory, found.received
    unit, size = ("GiB", GIB) if memory.total >= GIB else ("MiB", GIB // 1024)
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
            f"{other.memory.activations / size:.1f}",
            f"{other.memory.logits / size:.1f}",
            f"{other.memory.backward / size:.1f}",
            f"{other.memory.total / size:.1f}",
            "yes" if other.fits else "no",
            other.largest_batch or "none",
            "-" if found.is_toy else f"{other.tokens_per_s:,.0f}",
        )
        for other in found.alternatives
    ]
    header = ("recomputation", "activations", "logits", "backward", "total", "fits")
    table = markdown_table((*header, "largest local batch", "tokens/s"), rows, left=1)
    at_once = f"{found.local_batch_size} row{'' if found.local_batch_size == 1 else 's'}"
    return "\n".join(
        [
            f"{found.variant} on {found.ranks} x {found.gpu.name}, modeled, not measured",
            f"  batch             {at_once} per GPU and microbatch, "
            f"{found.global_batch_size} per step",
            f"  {unit} per GPU       " + ", ".join(f"{k} {v / size:.1f}" for k, v in fixed.items()),
            f"  plus, by recomputation, out of {found.gpu.available / GIB:.1f} GiB (logits and "
            "backward do not coexist):",
            "",
            table,
            "  largest local batch: the most rows at once that fit and divide the batch of a step",
            f"  {_received(dataclasses.asdict(received), received.total)}",
            f"  speed             {_speed(found, steps)}",
            *(
                f"  steps {each.first:,}-{each.last:,}: {each.trainable:,} parameters trained, "
                f"{each.frozen:,} frozen"
                for each in found.trained
            ),
            *([] if found.fits else [f"  does not fit      {found.advice()}"]),
            "  assumptions",
            *(f"    - {line}" for line in found.assumptions),
        ]
    )


def _received(parts: dict[str, int], total: int) -> str:
    """What one GPU receives in a step."""
    unit, size = ("GB", 1e9) if total >= 1e8 else ("MB", 1e6)
    moved = ", ".join(f"{name} {part / size:.2f}" for name, part in parts.items() if part)
    said = f"{unit} received       {total / size:.2f} per GPU and step"
    return f"{said}: {moved}" if moved else said


def _speed(found: "Estimate", steps: int) -> str:
    if found.is_toy:
        return "not modeled: the kernels of such a small step take longer to launch than to run"
    step = f"{found.seconds_per_step:.3f} s per step"
    return f"{found.tokens_per_s:,.0f} tokens/s, {step}, {found.time} for {steps:,} steps"


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
