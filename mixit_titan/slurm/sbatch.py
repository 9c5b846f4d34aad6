"""Calls sbatch. What Slurm refuses is a ConfigError."""

import os
import shutil
import subprocess
from pathlib import Path

from mixit_titan.errors import ConfigError


def check_sbatch() -> None:
    if shutil.which("sbatch") is None:
        raise ConfigError(
            "there is no sbatch on this machine: submit from a login node of the cluster, or use "
            "`mixit-titan train` here"
        )


def try_script(script: str) -> str:
    """When and where Slurm would start it."""
    return _sbatch("--test-only", script=script).removeprefix("sbatch: ")


def send(script: Path) -> str:
    """Submit it and return the job's id."""
    return _sbatch("--parsable", str(script)).split(";")[0]


def _sbatch(*arguments: str, script: str | None = None) -> str:
    # The script says all there is to say: variables of the shell would override it.
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
