"""What a cluster wants: slurm/site.env, which bash reads, here and in the jobs."""

import os
import subprocess
from pathlib import Path

from mixit_titan.errors import ConfigError


def site_file() -> Path:
    """It need not exist."""
    return Path(os.environ.get("SITE_ENV", "slurm/site.env")).absolute()


def site_defaults() -> dict[str, str]:
    """Variables for what no flag says: the shell's go before those of the file."""
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
