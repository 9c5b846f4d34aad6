"""Talks to Slurm: the site's defaults, its partitions and their limits, sbatch."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from mixit_titan.errors import ConfigError, unknown


def site_file() -> Path:
    """The file with the site's defaults, which need not exist."""
    return Path(os.environ.get("SITE_ENV", "slurm/site.env")).absolute()


def site_defaults() -> dict[str, str]:
    """Variables for what no option sets: those of the shell override those of the site's file."""
    file = site_file()
    if not file.is_file():
        return dict(os.environ)
    done = subprocess.run(
        ["bash", "-c", 'set -a; . "$0" >/dev/null && env -0', str(file)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ConfigError(f"{file} cannot be read by bash: {done.stderr.strip()}")
    found = dict(line.split("=", 1) for line in done.stdout.split("\0") if "=" in line)
    return found | os.environ


def check_partition(name: str | None, *, nodes: int, time: str) -> None:
    """Raise a ConfigError if the partition (None: the default one) can never start such a job.
    sbatch may accept a job that wants more, which then waits forever."""
    if name is not None and "," in name:
        return  # one of several: Slurm chooses
    partitions = _partitions()
    if name is None:
        name = next((key for key, of in partitions.items() if of["Default"] == "YES"), None)
        if name is None:
            return  # Slurm will report that it needs one
    if name not in partitions:
        raise unknown("partition", name, partitions)
    limits = partitions[name]
    most = min(int(limits["TotalNodes"]), _number(limits["MaxNodes"]))
    if nodes > most:
        raise ConfigError(f"--nodes is {nodes}: the partition {name!r} allows at most {most}")
    if seconds(time) > seconds(limits["MaxTime"]):
        raise ConfigError(
            f"--time is {time}: the partition {name!r} allows at most {limits['MaxTime']}"
        )


def _partitions() -> dict[str, dict[str, str]]:
    shown = subprocess.run(
        ["scontrol", "--oneliner", "show", "partition"], capture_output=True, text=True
    )
    if shown.returncode:
        said = (shown.stdout + shown.stderr).strip().splitlines()
        why = said[-1].removeprefix("scontrol: ") if said else f"code {shown.returncode}"
        raise ConfigError(f"Slurm does not answer: {why}")
    rows = [
        dict(word.split("=", 1) for word in line.split() if "=" in word)
        for line in shown.stdout.splitlines()
    ]
    return {row["PartitionName"]: row for row in rows if "PartitionName" in row}


def _number(text: str) -> float:
    return float("inf") if text == "UNLIMITED" else int(text)


def has_sbatch() -> bool:
    """Whether this machine can submit jobs."""
    return shutil.which("sbatch") is not None


def check_sbatch() -> None:
    """Raise a ConfigError on a machine without sbatch."""
    if not has_sbatch():
        raise ConfigError(
            "there is no sbatch on this machine: submit from a login node of the cluster, or use "
            "`mixit-titan train` here"
        )


def try_script(script: str) -> str:
    """When and where Slurm would start the script."""
    return _sbatch("--test-only", script=script).removeprefix("sbatch: ")


def send(script: Path) -> str:
    """Submit the script and return the job's id."""
    return _sbatch("--parsable", str(script)).split(";")[0]


def _sbatch(*arguments: str, script: str | None = None) -> str:
    # The script is complete: variables of the shell would override it.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SBATCH_")}
    done = subprocess.run(
        ["sbatch", *arguments], input=script, capture_output=True, text=True, env=environment
    )
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if done.returncode:
        last = said[-1] if said else f"sbatch ended with code {done.returncode}"
        for prefix in ("sbatch: error: ", "allocation failure: ", "Batch job submission failed: "):
            last = last.removeprefix(prefix)
        raise ConfigError(f"Slurm refuses the job: {last}")
    return said[-1] if said else ""


def seconds(text: str) -> float:
    """Slurm's notation of a time: `90` minutes, `1:30:00`, `2-12` days and hours, `2-12:30:00`,
    `UNLIMITED`."""
    if text.upper() in ("UNLIMITED", "INFINITE"):
        return float("inf")
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", text):
        raise ConfigError(f"--time is {text!r}: write HH:MM:SS, or DAYS-HH:MM:SS")
    days, _, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    # Without days the numbers are minutes and seconds; after days, hours and minutes.
    if len(parts) < 3:
        parts = [*parts, 0, 0][:3] if days else [0, *parts, 0][:3]
    hours, minutes, secs = parts
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + secs
