"""The options of `mixit-titan drill`. Importing this module does not import torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mixit_titan.ranges import Range


@dataclass(frozen=True, kw_only=True)
class DrillArguments:
    """Rehearse on this machine, or with --slurm on this cluster, what can go wrong with a run. A
    toy version of it, with the same variant, parallelism and checkpointing, is killed, stopped and
    damaged, and must reach the losses and weights of an uninterrupted run. It takes a few minutes.
    Any key of the file can be overridden on the command line; with --slurm, the options of `submit`
    apply too.

    Example: mixit-titan drill train_configs/debug_mixit.toml --nproc 2
    """

    config: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG.toml")]
    """A TOML file, such as one of train_configs/."""
    slurm: bool = False
    """Run as Slurm jobs, which requeue themselves."""
    nproc: Annotated[int | None, Range(least=1, most=4096)] = None
    """Ranks on this machine (default: one per GPU, else 1). Not with --slurm."""
    out: Path = Path("runs/drill")
    """Folder for the runs and the results. Faults that have passed there are not repeated."""
    only: tuple[str, ...] = ()
    """Names of faults, as in drill.json (default: all)."""
