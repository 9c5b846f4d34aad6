"""What `mixit-titan submit` is told."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from mixit_titan.errors import ConfigError, Problems
from mixit_titan.model.hardware import GPUS
from mixit_titan.options import flag
from mixit_titan.ranges import COUNT, NOT_NEGATIVE, Range, check_fields
from mixit_titan.slurm.cluster import seconds

SIGNAL_MARGIN = 30  # seconds between the last moment of a save and the time limit


@dataclass
class SubmitArguments:
    """Submit a training run to Slurm. It saves and requeues itself before its time limit, and goes
    on after a preemption, a crash or the loss of a node. Any key of the file can be overridden on
    the command line. Defaults for partition, account, qos and constraint come from SBATCH_PARTITION
    and so on, in the environment or in slurm/site.env.

    Example: mixit-titan submit train_configs/160m_fineweb_edu.toml --nodes 1 --gpus-per-node 8
    """

    config: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG.toml")]
    """A TOML file, such as one of train_configs/."""
    nodes: Annotated[int, Range(least=1, most=2**16)] = 1
    min_nodes: Annotated[int | None, COUNT] = None
    """Also run on fewer nodes, down to so many, where no more are free (default: never)."""
    gpus_per_node: Annotated[int, Range(least=0, most=1024)] = 8
    """0: one rank a node, on its CPU."""
    time: str = "24:00:00"
    """The limit of one start; a run may take several."""
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    mail: str | None = None
    """Where Slurm writes when the run ends, fails or is requeued."""
    array_variants: str | None = None
    """Variants or stacks, separated by commas: a job array with one run each."""
    after: str | None = None
    """Start when this job has ended well."""
    max_restarts: Annotated[int, NOT_NEGATIVE] = 20
    """How often the job may be started again."""
    save_seconds: Annotated[int, Range(least=10, most=10**6)] = 150
    """How long a save may take: the run is asked to stop so long, and some seconds, before its
    limit."""
    gpu: Annotated[str, tyro.conf.arg(help=", ".join(GPUS))] = "H100"
    """The GPUs of the nodes: a run that cannot fit into their memory is refused."""
    ignore_memory: bool = False
    """Submit a run also if it is said not to fit."""
    dry_run: bool = False
    """Print the job script, what Slurm thinks of it, and all problems there are (exit code 1 if
    there is one). Nothing is written or submitted."""


def check_numbers(args: SubmitArguments, problems: Problems) -> None:
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
                f"--time {args.time} is too short: {lead} s of it are kept for saving. Ask for "
                "more, or lower --save-seconds"
            )
