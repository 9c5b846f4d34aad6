"""The configs and job scripts that come with the project: beside the package in a checkout, and
inside it once installed."""

from pathlib import Path


def shipped_configs() -> dict[str, Path]:
    """The files of train_configs/ by name, without the suffix."""
    return _files("train_configs", "train_configs/*.toml")


def shipped_jobs() -> dict[str, Path]:
    """The job scripts of slurm/ by name, without the suffix."""
    return _files("job_scripts", "slurm/*.sbatch")


def _files(installed: str, beside: str) -> dict[str, Path]:
    package = Path(__file__).parents[1]
    found = [*package.glob(f"{installed}/{Path(beside).name}")] or [*package.parent.glob(beside)]
    return {file.stem: file for file in sorted(found)}
