"""The mixit-titan command: one small function per subcommand."""

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from mixit_titan import __version__
from mixit_titan.errors import ConfigError, unknown
from mixit_titan.model.shapes import FLAVORS, find_flavor
from mixit_titan.model.storage import Storage
from mixit_titan.model.variants import VARIANTS, find_variant


def main() -> None:
    """Dispatch to a subcommand; a user's mistake ends in one sentence and exit code 2."""
    arguments = sys.argv[1:]
    name = arguments[0] if arguments else "--help"
    try:
        if name in ("-h", "--help"):
            print(_usage())
        elif name == "--version":
            print(__version__)
        elif name not in COMMANDS:
            raise unknown("command", name, COMMANDS)
        else:
            COMMANDS[name](arguments[1:])
    except ConfigError as error:
        if os.environ.get("RANK", "0") == "0":
            print(f"mixit-titan: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def train(arguments: list[str]) -> None:
    from mixit_titan.run_checks import check_folder
    from mixit_titan.run_config import load_run
    from mixit_titan.runtime.checkpoint import latest_step
    from mixit_titan.runtime.launch import launch, local_ranks, ranks_from_environment
    from mixit_titan.runtime.train import train as train_rank

    args, overrides = tyro.cli(
        TrainArguments, prog="mixit-titan train", args=arguments, return_unknown_args=True
    )
    world_size = ranks_from_environment()
    if world_size is not None:
        config = load_run(args.config, overrides, world_size=world_size)
        check_folder(config)
        train_rank(config)
        return
    nproc = local_ranks(args.nproc)
    config = load_run(args.config, overrides, world_size=nproc)
    check_folder(config)
    if latest_step(config) == config.training.steps:
        print(f"The run in {config.dump_folder} is finished: raise --training.steps to go on")
        return
    launch(nproc, ["train", args.config, *overrides], lambda: train_rank(config))


@dataclass
class TrainArguments:
    """Train with torchtitan's Trainer. Any key of the file can be overridden on the command line.

    Example: mixit-titan train train_configs/debug_mixit.toml --training.steps 20
    """

    config: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG.toml")]
    """A TOML file, such as one of train_configs/. docs/training.md lists its keys."""
    nproc: int | None = None
    """Ranks on this machine (default: one per GPU, else 1). Ignored inside torchrun and srun."""


def params(arguments: list[str]) -> None:
    from mixit_titan.model.accounting import report
    from mixit_titan.model.build import llama_config
    from mixit_titan.model.storage import choose_form

    args = tyro.cli(ParamsArguments, prog="mixit-titan params", args=arguments)
    if args.ranks < 1:
        raise ConfigError(f"--ranks is {args.ranks}: it must be at least 1")
    shape = find_flavor(args.flavor)
    if args.seq_len is not None:
        shape = dataclasses.replace(shape, seq_len=args.seq_len)
    form = choose_form(args.storage, shape, args.mixing_dtype)
    config = llama_config(shape, find_variant(args.variant), storage=form, attention="sdpa")
    counts = report(
        config,
        seq_len=shape.seq_len,
        ranks=args.ranks,
        mixing_dtype=args.mixing_dtype,
    )
    counts = {"flavor": args.flavor, **counts}
    print(json.dumps(counts) if args.json else _params_text(counts))


@dataclass
class ParamsArguments:
    """Count parameters, FLOPs and memory of a model without building its data.

    Example: mixit-titan params --variant frozen_qk --flavor 160m --ranks 8
    """

    variant: Annotated[str, tyro.conf.arg(help=", ".join(VARIANTS))] = "standard"
    flavor: Annotated[str, tyro.conf.arg(help=", ".join(FLAVORS))] = "debug"
    ranks: int = 1
    """Ranks that share the memory by FSDP2."""
    mixing_dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """What the mixing matrices are kept in."""
    storage: Storage = "auto"
    """The form of the mixing matrices (docs/mixing.md)."""
    seq_len: int | None = None
    """Instead of the flavour's."""
    json: bool = False
    """One line of JSON instead of a table."""


def demo(arguments: list[str]) -> None:
    from mixit_titan.demo import DemoArguments, run_demo

    run_demo(tyro.cli(DemoArguments, prog="mixit-titan demo", args=arguments))


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "train": train,
    "params": params,
    "demo": demo,
}


def _usage() -> str:
    return (
        "usage: mixit-titan COMMAND ...\n\n"
        "  train CONFIG.toml   train a variant with torchtitan's Trainer\n"
        "  params              parameters, FLOPs and memory of a model\n"
        "  demo                train all five variants on this machine and compare them\n\n"
        "Each command explains itself: mixit-titan train --help"
    )


def _params_text(counts: dict) -> str:
    memory, flops = counts["memory_per_rank_bytes"], counts["flops_per_token"]
    mib = {key: f"{value / 2**20:,.1f} MiB" for key, value in memory.items()}
    return "\n".join(
        [
            f"{counts['variant']}, flavour {counts['flavor']}, sequence {counts['seq_len']:,}",
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
