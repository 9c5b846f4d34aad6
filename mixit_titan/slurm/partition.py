"""What a partition gives. sbatch may accept a job that wants more, which then waits for ever."""

import subprocess

from mixit_titan.errors import ConfigError, unknown
from mixit_titan.slurm.time_limit import seconds


def check_partition(name: str | None, *, nodes: int, time: str) -> None:
    """Raise a ConfigError if the partition (None: the default one) can never start such a job."""
    if name is not None and "," in name:
        return  # one of several: Slurm's own choice
    partitions = _partitions()
    if name is None:
        name = next((key for key, of in partitions.items() if of["Default"] == "YES"), None)
        if name is None:
            return  # Slurm will say that it needs one
    if name not in partitions:
        raise unknown("partition", name, partitions)
    limits = partitions[name]
    most = min(int(limits["TotalNodes"]), _number(limits["MaxNodes"]))
    if nodes > most:
        raise ConfigError(f"--nodes is {nodes}: the partition {name!r} gives at most {most}")
    if seconds(time) > seconds(limits["MaxTime"]):
        raise ConfigError(
            f"--time is {time}: the partition {name!r} gives at most {limits['MaxTime']}"
        )


def _partitions() -> dict[str, dict[str, str]]:
    shown = subprocess.run(
        ["scontrol", "--oneliner", "show", "partition"], capture_output=True, text=True
    )
    if shown.returncode:
        raise ConfigError(f"Slurm does not answer: {shown.stderr.strip() or shown.stdout.strip()}")
    rows = [
        dict(word.split("=", 1) for word in line.split() if "=" in word)
        for line in shown.stdout.splitlines()
    ]
    return {row["PartitionName"]: row for row in rows if "PartitionName" in row}


def _number(text: str) -> float:
    return float("inf") if text == "UNLIMITED" else int(text)
