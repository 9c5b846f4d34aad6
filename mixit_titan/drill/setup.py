"""From a user's config to the setup of a drill."""

import math
from pathlib import Path

from mixit_titan.config.checks import SHARD_OVER_ALL
from mixit_titan.config.plan import plan_run
from mixit_titan.config.toml import read_toml
from mixit_titan.drill.run import Setup
from mixit_titan.drill.toy import toy_table, write_toml
from mixit_titan.errors import ConfigError
from mixit_titan.runtime.watch import FLOOR, WatchConfig

_LONGER = 5.0  # seconds
_LEARNED = 10.0  # seconds beyond the floor: steps may take a second on a busy machine


def write_setup(
    config: str,
    overrides: list[str],
    toy: Path,
    *,
    steps: int,
    ranks: int,
    fewer: int,
    on_gpus: bool | None,
) -> Setup:
    """Check the user's config and write its toy version. `on_gpus` is as in `plan_run`."""
    plan = plan_run(config, overrides, world_size=ranks, on_gpus=on_gpus)
    batch = 2 * math.lcm(ranks, max(fewer, 1))
    write_toml(toy, toy_table(read_toml(config), plan, steps=steps, batch=batch))
    plan = plan_run(str(toy), overrides, world_size=ranks, on_gpus=on_gpus)
    watch = plan.sections.watch
    return Setup(
        config=toy,
        overrides=overrides,
        steps=plan.sections.training.steps,
        ranks=ranks,
        fewer=fewer,
        why_not_fewer=_why_not_fewer(toy, overrides, fewer, on_gpus),
        watched=watch.enable,
        long_save=_long_save(watch),
    )


def _why_not_fewer(toy: Path, overrides: list[str], fewer: int, on_gpus: bool | None) -> str | None:
    if fewer < 1:
        return "there is only one rank"
    try:
        plan_run(str(toy), [*overrides, *SHARD_OVER_ALL], world_size=fewer, on_gpus=on_gpus)
    except ConfigError as error:
        return str(error)
    return None


def _long_save(watch: WatchConfig) -> float:
    """Longer than a step may take, if a save may take that long."""
    limit = FLOOR + _LEARNED if watch.step is None else watch.step
    return min(watch.save / 2, limit + _LONGER)
