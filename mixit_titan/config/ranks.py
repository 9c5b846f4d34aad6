"""How many ranks a run is for, from the degrees of its [parallelism]."""

import math

from torchtitan.config.configs import ParallelismConfig

from mixit_titan.config.sections import defaults
from mixit_titan.config.toml import fill, read_run
from mixit_titan.model.hardware import GPUS_PER_NODE

_DEGREES = (
    "data_parallel_replicate_degree",
    "context_parallel_degree",
    "tensor_parallel_degree",
    "pipeline_parallel_degree",
)


def degrees_product(parallelism: ParallelismConfig) -> int | None:
    """The product of all degrees; None if the number of shards is left to the number of ranks."""
    shards = parallelism.data_parallel_shard_degree
    return None if shards == -1 else shards * _others(parallelism)


def own_ranks(path: str, overrides: list[str]) -> int:
    """The number of ranks that a file requires; where it leaves the number open, the GPUs of one
    node, or more if its degrees do not divide that number."""
    table = read_run(path, overrides)
    section = defaults(table, True)["parallelism"] | table.get("parallelism", {})
    parallelism = fill(ParallelismConfig, section, section="parallelism", where=path)
    named = degrees_product(parallelism)
    ranks = math.lcm(_others(parallelism), GPUS_PER_NODE) if named is None else named
    return max(1, ranks)


def _others(parallelism: ParallelismConfig) -> int:
    return math.prod(getattr(parallelism, degree) for degree in _DEGREES)
