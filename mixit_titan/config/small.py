"""Advice for a run that is too large for this machine."""

from typing import Any

from mixit_titan.config.checks import NEED_GPUS, SHARD_OVER_ALL

_SMALL = (
    *("--device", "cpu"),
    *("--model.flavor", "debug"),
    *("--data.path", "synthetic"),
    *("--training.local_batch_size", "4"),
    *("--training.global_batch_size", "-1"),
)


def small_model(table: dict[str, Any]) -> str:
    """Overrides by which `train` and `bench` run a small model on the CPU, on random tokens, with
    the other settings of the run that `table` describes."""
    split = SHARD_OVER_ALL if "parallelism" in table else ()
    instead = []
    for name, (value, other) in NEED_GPUS.items():
        section, key = name.split(".")
        if table.get(section, {}).get(key) == value:
            instead += [f"--{name}", other]
    return " ".join((*_SMALL, *split, *instead))
