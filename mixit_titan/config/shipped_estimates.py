"""What each of the shipped configs takes on GPUs: the tables of docs/hardware.md."""

from mixit_titan.config.estimate import Estimate, estimate
from mixit_titan.config.plan import plan_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.config.toml import read_run
from mixit_titan.errors import ConfigError
from mixit_titan.model.hardware import GIB, find_gpu
from mixit_titan.model.shapes import FLAVORS
from mixit_titan.model.variants import VARIANTS
from mixit_titan.tables import markdown_table

_NO_SPEED = (
    "-: not modeled, because the kernels of such a small step take longer to launch than to run. "
    "These files are for a CPU, and take minutes there."
)


def by_size() -> list[str]:
    """The names of all shipped configs, from the smallest model to the largest."""
    flavors = {
        name: read_run(str(file), [])["model"]["flavor"] for name, file in shipped_configs().items()
    }
    return sorted(flavors, key=lambda name: (list(FLAVORS).index(flavors[name]), name))


def shipped_estimate(name: str, variant: str, *more: str, ranks: int, gpu: str) -> Estimate:
    """The estimate of one config and variant; `more` are further overrides. A config with replicas
    gets as many as the ranks allow; if there are fewer ranks than one replica needs, they share the
    model."""
    path = str(shipped_configs()[name])
    overrides = ["--model.variant", variant, *more]
    split = read_run(path, []).get("parallelism", {})
    if "data_parallel_replicate_degree" in split:
        shards = min(ranks, split["data_parallel_shard_degree"])
        overrides += ["--parallelism.data_parallel_shard_degree", str(shards)]
        overrides += ["--parallelism.data_parallel_replicate_degree", str(ranks // shards)]
    try:
        plan = plan_run(path, overrides, world_size=ranks, on_gpus=True, gpu=find_gpu(gpu))
    except ConfigError as error:
        raise ConfigError(f"{name} cannot run on {ranks} GPUs: {error}") from None
    return estimate(plan, ranks=ranks, gpu=gpu)


def shipped_estimates(*, ranks: int, gpu: str) -> list[tuple[str, Estimate]]:
    """The estimates of each config and variant."""
    return [
        (name, shipped_estimate(name, variant, ranks=ranks, gpu=gpu))
        for name in by_size()
        for variant in VARIANTS
    ]


def shipped_markdown(found: list[tuple[str, Estimate]]) -> str:
    """Two tables: what fits, and how fast it is."""
    by_config: dict[str, list[Estimate]] = {}
    for name, one in found:
        by_config.setdefault(name, []).append(one)
    first = found[0][1]
    fits = [
        (
            name,
            estimates[0].recomputation,
            f"{estimates[0].local_batch_size} of {estimates[0].global_batch_size}",
            *(_gib(one.memory.total) for one in estimates),
            "yes" if all(one.fits for one in estimates) else "no",
        )
        for name, estimates in by_config.items()
    ]
    speeds = [(name, *map(_speed, estimates)) for name, estimates in by_config.items()]
    toys = any(one.is_toy for _, one in found)
    return "\n".join(
        [
            f"Modeled, not measured: {first.ranks} x {first.gpu.name}. GiB per GPU in a step, of "
            f"{first.gpu.available / GIB:.1f}:",
            "",
            markdown_table(
                ("config", "recomputation", "rows at once", *VARIANTS, "fits"), fits, left=2
            ),
            f"Tokens/s of {first.ranks} GPUs, and the time to the last step:",
            "",
            markdown_table(("config", *VARIANTS), speeds, left=1).rstrip(),
            *(["", _NO_SPEED] if toys else []),
        ]
    )


def _gib(size: int) -> str:
    gib = size / GIB
    return f"{gib:.1f}" if gib >= 0.1 else f"{gib:.2g}"


def _speed(one: Estimate) -> str:
    return "-" if one.is_toy else f"{one.tokens_per_s:,.0f} ({one.time})"
