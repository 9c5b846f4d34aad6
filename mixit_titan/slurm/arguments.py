"""The options of `mixit-titan submit`."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

import tyro

from mixit_titan.errors import ConfigError, Problems
from mixit_titan.fields import Group
from mixit_titan.model.hardware import GPUS
from mixit_titan.options import flag
from mixit_titan.ranges import COUNT, NOT_NEGATIVE, Range, check_fields
from mixit_titan.slurm.cluster import seconds

SIGNAL_MARGIN = 30  # seconds between the latest end of a save and the time limit
_GPU = f"The GPUs of the nodes: {', '.join(GPUS)}. A run that does not fit into them is refused."


@dataclass
class SubmitArguments:
    """Submit a training run to Slurm. It saves and requeues itself before its time limit, and
    resumes after a preemption, a crash or the loss of a node. Any key of the file can be overridden
    on the command line: --section.key value.

    Example: mixit-titan submit train_configs/160m_fineweb_edu.toml --nodes 1 --gpus-per-node 8
    """

    config: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG.toml")]
    """A TOML file, such as one of train_configs/."""
    nodes: Annotated[int, Range(least=1, most=2**16), Group("resources")] = 1
    """Nodes of the job."""
    min_nodes: Annotated[int | None, COUNT] = None
    """Also run on fewer nodes, down to this many, where no more are free (default: never)."""
    gpus_per_node: Annotated[int, Range(least=0, most=1024)] = 8
    """GPUs of each node, with one rank per GPU. 0: one rank per node, on its CPU."""
    time: str = "24:00:00"
    """The time limit of one job; a longer run is requeued and resumes."""
    partition: Annotated[str | None, Group("site")] = None
    """Slurm's partition. Default, as for the next three: the variable SBATCH_PARTITION and so on,
    from the environment or slurm/site.env."""
    account: str | None = None
    """The account that is charged."""
    qos: str | None = None
    """Slurm's quality of service."""
    constraint: str | None = None
    """Features that the nodes must have."""
    mail: Annotated[str | None, Group("runs and restarts")] = None
    """An address that Slurm notifies when the run ends, fails or is requeued."""
    array_variants: str | None = None
    """Variants or stacks, separated by commas: a job array with one run each."""
    after: str | None = None
    """Start once the job with this id has succeeded."""
    max_restarts: Annotated[int, NOT_NEGATIVE] = 20
    """How many times the job may be restarted."""
    save_seconds: Annotated[int, Range(least=10, most=10**6)] = 150
    """How long a save may take: the run is asked to stop this long, plus 30 s, before its time
    limit."""
    gpu: Annotated[str, Group("checks before submission"), tyro.conf.arg(help=_GPU)] = "H100"
    ignore_memory: bool = False
    """Submit a run even if it is estimated not to fit."""
    dry_run: bool = False
    """Print the job script, Slurm's answer to it, and all problems (exit code 1 if there are any).
    Nothing is written or submitted."""


def check_numbers(args: SubmitArguments, problems: Problems) -> None:
    """Check the ranges of the options, and that they fit together."""
    check_fields(args, flag, problems)
    with problems.noted():
        if args.min_nodes is not None and args.min_nodes > max(args.nodes, 1):
            raise ConfigError(
                f"--min-nodes is {args.min_nodes}: it must be 1 to --nodes {args.nodes}"
            )
    lead = args.save_seconds + SIGNAL_MARGIN
    with problems.noted():
        if seconds(args.time) <= 2 * lead:
            raise ConfigError(
                f"--time {args.time} is too short: it must be more than {_clock(2 * lead)}, as "
                f"the last {lead} s are reserved for saving. Raise it, or lower --save-seconds"
            )


def _clock(seconds: int) -> str:
    """`0:06:00`"""
    return str(timedelta(seconds=seconds))
