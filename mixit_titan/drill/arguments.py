"""What `mixit-titan drill` is told. Importing this does not import torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mixit_titan.ranges import Range


@dataclass(frozen=True, kw_only=True)
class DrillArguments:
    """Rehearse on this machine, or with --slurm on this cluster, what can go wrong with a run: a
    toy of it, with its variant, parallelism and way of saving, is killed, stopped and damaged, and
    must come to the losses and weights of an unbroken one. It takes some minutes. Any key of the
    file can be overridden on the command line; with --slurm, the flags of `submit` can be given.

    Example: mixit-titan drill train_configs/debug_mixit.toml --nproc 2
    """

    config: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG.toml")]
    """A TOML file, such as one of train_configs/."""
    slurm: bool = False
    """As jobs of Slurm, which requeue themselves."""
    nproc: Annotated[int | None, Range(least=1, most=4096)] = None
    """Ranks on this machine (default: one per GPU, else 1). Not with --slurm."""
    out: Path = Path("runs/drill")
    """Folder for the runs and what came out. What has passed there is not done again."""
    only: tuple[str, ...] = ()
    """Names of faults, as drill.json has them (default: all)."""
