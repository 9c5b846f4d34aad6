"""`mixit-titan train CONFIG.toml`: from its arguments to the ranks of a run."""

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mixit_titan.config.checks import check_folder
from mixit_titan.config.run import load_run
from mixit_titan.runtime.checkpoint import latest_step
from mixit_titan.runtime.launch import launch, local_ranks, ranks_from_environment
from mixit_titan.runtime.run_state import read_state
from mixit_titan.runtime.train import train


@dataclass(frozen=True)
class TrainArguments:
    """Train with torchtitan's Trainer. Any key of the file can be overridden on the command line.

    Example: mixit-titan train train_configs/debug_mixit.toml --training.steps 20
    """

    config: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG.toml")]
    """A TOML file, such as one of train_configs/. docs/training.md lists its keys."""
    nproc: int | None = None
    """Ranks on this machine (default: one per GPU, else 1). Ignored inside torchrun and srun."""


def run_train(args: TrainArguments, overrides: list[str]) -> None:
    """Be a rank where torchrun or srun started one, else start them. `overrides`: `--section.key
    value` words."""
    world_size = ranks_from_environment()
    nproc = world_size or local_ranks(args.nproc)
    config = load_run(args.config, overrides, world_size=nproc)
    check_folder(config)
    if world_size is not None:
        train(config)
        return
    if latest_step(config) == config.training.steps:
        print(f"The run in {config.dump_folder} is finished: raise --training.steps to go on")
        return
    launch(nproc, ["train", args.config, *overrides], lambda: train(config))
    state = read_state(Path(config.dump_folder))
    if state is not None and state.word == "stopped":
        print(f"Stopped after step {state.step}: the same command goes on", file=sys.stderr)
        sys.exit(128 + signal.SIGTERM)
